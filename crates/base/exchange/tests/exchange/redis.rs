//! RESP as Redis clients use it: set-up commands, both versions, inline requests, and detection.

use crate::protocols::{answers, line, talk, talk_in};
use ioloom_exchange::{Session, Token};

const TOKEN: &str = "correct-horse-battery";

/// Encodes words as a frame.
fn frame(words: &str) -> String {
    let words: Vec<_> = words.split(' ').collect();
    let text: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{text}", words.len())
}

fn said(asked: &str) -> String {
    answers(asked.as_bytes())
}

/// The reply to `HELLO` of connection 0.
fn greeting(version: u8) -> String {
    let begin = if version == 3 { "%7" } else { "*14" };
    let own = env!("CARGO_PKG_VERSION");
    format!(
        "{begin}\r\n$6\r\nserver\r\n$6\r\nioloom\r\n$7\r\nversion\r\n${}\r\n{own}\r\n$5\r\nproto\r\n\
         :{version}\r\n$2\r\nid\r\n:0\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n\
         $6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
        own.len()
    )
}

#[test]
fn hello_selects_the_version_of_maps_and_nulls() {
    let name = frame("CLIENT GETNAME");
    let docs = frame("COMMAND DOCS");
    assert_eq!(said(&frame("HELLO")), greeting(2));
    assert_eq!(said(&(frame("HELLO 2") + &name + &docs)), greeting(2) + "$-1\r\n*0\r\n");
    assert_eq!(said(&(frame("hello 3") + &name + &docs)), greeting(3) + "_\r\n%0\r\n");
    let back = frame("HELLO 3") + &frame("HELLO") + &frame("HELLO 2") + &name;
    assert_eq!(said(&back), greeting(3) + &greeting(3) + &greeting(2) + "$-1\r\n");
    let named = frame("HELLO 3 AUTH default x SETNAME desk-7") + &name;
    assert_eq!(said(&named), greeting(3) + "$6\r\ndesk-7\r\n");
    for bad in ["1", "4", "99"] {
        let asked = frame(&format!("HELLO {bad}")) + &name;
        assert_eq!(said(&asked), "-NOPROTO unsupported protocol version\r\n$-1\r\n");
    }
    let whole = "-ERR Protocol version is not an integer or out of range\r\n$-1\r\n";
    assert_eq!(said(&(frame("HELLO x") + &name)), whole);
    // Nothing changes unless all of it is valid.
    let half = frame("HELLO 3 SETNAME a WHAT") + &name;
    assert_eq!(said(&half), "-ERR syntax error in HELLO option\r\n$-1\r\n");
}

#[test]
fn set_up_commands_are_answered() {
    for (asked, expected) in [
        ("PING", "+PONG\r\n"),
        ("ping hello", "$5\r\nhello\r\n"),
        ("ECHO hello", "$5\r\nhello\r\n"),
        ("ECHO", "-ERR unknown-command\r\n"),
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK\r\n"),
        ("CLIENT SETINFO lib-ver 8.1.0", "+OK\r\n"),
        ("CLIENT SETINFO other x", "-ERR bad-number\r\n"),
        ("CLIENT SETNAME a", "+OK\r\n"),
        ("CLIENT ID", ":0\r\n"),
        ("CLIENT INFO", "$23\r\nid=0 name= db=0 resp=2\n\r\n"),
        ("CLIENT NO-EVICT on", "+OK\r\n"),
        // These would change what the client receives.
        ("CLIENT REPLY OFF", "-ERR unknown-command\r\n"),
        ("CLIENT TRACKING on", "-ERR unknown-command\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 1", "-ERR DB index is out of range\r\n"),
        ("COMMAND COUNT", ":13\r\n"),
        (
            "COMMAND INFO buy nothing",
            "*2\r\n*10\r\n$3\r\nbuy\r\n:3\r\n*1\r\n+write\r\n:0\r\n:0\r\n:0\r\n*0\r\n*0\r\n*0\r\n*0\r\n\
         $-1\r\n",
        ),
        ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ("CONFIG GET appendonly", "*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n"),
        ("CONFIG GET nothing", "*0\r\n"),
        ("CONFIG SET save x", "-ERR unknown-command\r\n"),
        ("AUTH x", "+OK\r\n"),
        ("INFO", "$7\r\nfine 1\n\r\n"),
    ] {
        assert_eq!(said(&frame(asked)), expected, "{asked}");
    }
    let list = said(&frame("COMMAND"));
    assert!(list.starts_with("*13\r\n*10\r\n$4\r\nauth\r\n:-2\r\n"), "{list}");
    assert_eq!(list.matches("*10\r\n").count(), 13);
    assert!(said(&frame("COMMAND LIST")).contains("$4\r\nsell\r\n"));
}

#[test]
fn any_bytes_are_echoed() {
    let mut asked = b"*2\r\n$4\r\nECHO\r\n$4\r\n".to_vec();
    asked.extend_from_slice(b"\0\xff\r\n\r\n");
    let (out, _) = talk(&[&asked], line(), 128);
    assert_eq!(out, b"$4\r\n\0\xff\r\n\r\n");
}

#[test]
fn names_are_checked_and_can_be_removed() {
    let name = frame("CLIENT GETNAME");
    let removed =
        frame("CLIENT SETNAME a") + "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$0\r\n\r\n" + &name;
    assert_eq!(said(&removed), "+OK\r\n+OK\r\n$-1\r\n");
    let long = format!("CLIENT SETNAME {}", "x".repeat(65));
    for bad in [frame(&long), "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$3\r\na b\r\n".to_owned()] {
        assert!(said(&bad).starts_with("-ERR Client names cannot contain spaces"), "{bad}");
    }
}

#[test]
fn inline_requests_and_empty_lines_are_accepted() {
    assert_eq!(said("PING\r\n"), "+PONG\r\n");
    assert_eq!(said("PING\nPING\r\n\r\n\n  \r\nping\r\n"), "+PONG\r\n".repeat(3));
    assert_eq!(
        said("ECHO x\r\nBUY  1 10\r\nsell 1 5\r\nFLY\r\n"),
        "$1\r\nx\r\n:90\r\n:95\r\n-ERR unknown-command\r\n"
    );
    assert_eq!(said("HELLO 3\r\nCLIENT GETNAME\r\n"), greeting(3) + "_\r\n");
    // The end of a mass insertion of redis-cli, with and without requests before it.
    let end = format!("\r\n{}", frame("ECHO 01234567890123456789"));
    let echo = "$20\r\n01234567890123456789\r\n";
    assert_eq!(said(&end), echo);
    assert_eq!(said(&(frame("BUY 1 1") + &end)), format!(":99\r\n{echo}"));
    assert_eq!(
        said(&("BUY 1 1\r\nBUY 1 1\r\n".to_owned() + &end)),
        format!(":99\r\n:98\r\n{echo}")
    );
    let words = "PING".to_owned() + &" x".repeat(16) + "\r\nPING\r\n";
    assert_eq!(said(&words), "-ERR unknown-command\r\n+PONG\r\n");
}

#[test]
fn long_and_empty_frames_do_not_end_the_connection() {
    let long = |words: usize| frame(&("MSET".to_owned() + &" key".repeat(words - 1)));
    let unknown = "-ERR unknown-command\r\n";
    for words in [16, 17, 21, 500] {
        assert_eq!(said(&(long(words) + &frame("PING"))), format!("{unknown}+PONG\r\n"), "{words}");
    }
    assert_eq!(said("*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n"), "+PONG\r\n");
    for zero in ["00", "000", "0000000000"] {
        let (out, is_over) = talk(&[format!("*{zero}\r\nPING\r\n").as_bytes()], line(), 128);
        assert_eq!((&*out, is_over), (&b"-ERR bad-frame\r\n"[..], true), "{zero}");
    }
    assert_eq!(said("*1366\r\n"), "-ERR too-long\r\n");
    assert_eq!(said("*1365\r\n"), "");
}

#[test]
fn the_original_protocol_is_not_mistaken_for_resp() {
    let invalid = "Invalid command\n";
    for asked in [
        "\n",
        "\r\n",
        "ping\n",
        "quit\n",
        "info\n",
        "hello\n",
        "Ping\n",
        "PINGX\n",
        "PIN\n",
        "BUY 1 1\n",
        "SHOW\n",
        "Buy 1 1\r\n",
        "HELLO\0",
        "PATCH\n",
        "x /show HTTP/1.1\n",
    ] {
        let text = said(&format!("{asked}show\n"));
        assert_eq!(text, format!("{invalid}1 100 5000\n3 2147483647 700\n"), "{asked:?}");
    }
    assert_eq!(said("PING"), "", "incomplete");
    // Telnet ends lines with CR LF.
    assert_eq!(said("buy 1 10\r\nping\r\n"), format!("[buy] success\n{invalid}"));
    assert_eq!(said("\r\nbuy 1 10\r\n"), format!("{invalid}[buy] success\n"));
    // Only CR LF makes an upper-case order a RESP request.
    assert_eq!(said("BUY 1 10\r\nSHOW\r\n").lines().next(), Some(":90"));
}

#[test]
fn tokens_are_presented_with_auth_or_hello() {
    let session = || Session::new(Some(Token::new(TOKEN).unwrap().into()), 7);
    let answered = |asked: &str| {
        let (out, over) = talk_in(session(), &[asked.as_bytes()], line(), 128);
        (String::from_utf8(out).unwrap(), over)
    };
    let denied = "-NOAUTH no-token\r\n";
    let buy = frame("BUY 1 1");
    let hello = frame(&format!("HELLO 3 AUTH default {TOKEN} SETNAME x"));
    let seven = greeting(3).replace("id\r\n:0", "id\r\n:7");
    assert_eq!(answered(&format!("{hello}{buy}")), (format!("{seven}:99\r\n"), false));
    assert_eq!(answered(&format!("AUTH {TOKEN}\r\n{buy}")), ("+OK\r\n:99\r\n".to_owned(), false));
    // After AUTH, as redis-cli -3 -a does.
    let both = format!("AUTH {TOKEN}\r\n{}{buy}", frame("HELLO 3"));
    assert_eq!(answered(&both), (format!("+OK\r\n{seven}:99\r\n"), false));
    for bad in ["HELLO 3", "PING", "ECHO x", "CLIENT ID", "COMMAND", "INFO", "CONFIG GET save"] {
        assert_eq!(answered(&(frame(bad) + &buy)), (denied.repeat(2), false), "{bad}");
    }
    let wrong = frame("HELLO 3 AUTH default wrong") + &hello;
    assert_eq!(answered(&wrong), (denied.to_owned(), true), "one guess per connection");
}
