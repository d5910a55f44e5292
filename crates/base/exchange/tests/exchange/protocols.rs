//! Protocols: fixed conversations, with the bytes split in every possible way.

use ioloom_exchange::{
    Access, Answer, ClassicForm, Command, Exchange, Request, Rights, Session, Settings, Spelling,
    State, Token, UnknownStock, encode,
};
use proptest::prelude::*;

const STOCKS: &str = "1 100 5000\n3 2147483647 700\n";

fn answer(state: &mut State, request: &Request) -> Answer {
    match &request.command {
        Command::Trade(order) => state.trade(order, request.request_id.as_ref()).0,
        Command::Show => Answer::Shown(state.show()),
        Command::Health | Command::Metrics => Answer::Text("fine 1\n".into()),
        Command::Ready => Answer::NotReady("stopping\n".into()),
        Command::Local(local) => Answer::Local(local.clone()),
    }
}

/// Feeds bytes to a minimal server. Returns its output and whether it would close the connection.
pub(crate) fn talk(pieces: &[&[u8]], settings: Settings, requests_max: usize) -> (Vec<u8>, bool) {
    talk_in(Session::default(), pieces, settings, requests_max)
}

pub(crate) fn talk_in(
    mut session: Session,
    pieces: &[&[u8]],
    settings: Settings,
    requests_max: usize,
) -> (Vec<u8>, bool) {
    let mut state = State::new(Exchange::from_text(STOCKS).unwrap(), 0);
    let mut out = Vec::new();
    for piece in pieces {
        let mut requests = Vec::new();
        session.feed(piece, requests_max, &mut |request| requests.push(request));
        while session.has_more() && !session.is_over() {
            session.feed(b"", requests_max, &mut |request| requests.push(request));
        }
        for request in &requests {
            let answer = answer(&mut state, request);
            encode(request.form, &settings, &answer, &mut out);
        }
    }
    (out, session.is_over())
}

pub(crate) fn line() -> Settings {
    Settings { classic: ClassicForm::Line, ..Settings::default() }
}

pub(crate) fn answers(bytes: &[u8]) -> String {
    String::from_utf8(talk(&[bytes], line(), 128).0).unwrap()
}

#[test]
fn original_protocol_answers_are_unchanged() {
    let asked =
        b"show\nbuy 1 10\nsell 3 1\nbuy 1 91\nbuy 2 1\nbuy 1 -5\nbuy 1\nbuy 1 0\n\nwhat\r\n\
        buy 1 90 9\nsell 1 99999999999\nshow\n";
    assert_eq!(
        answers(asked),
        "1 100 5000\n3 2147483647 700\n[buy] success\nToo many stocks\nNot enough left stocks\n\
         No such stock\nInvalid number\nInvalid number\nInvalid number\nInvalid command\n\
         Invalid command\nInvalid number\nInvalid number\n1 90 5000\n3 2147483647 700\n"
    );
    let (out, over) = talk(&[b"exit\nbuy 1 1\n"], Settings::default(), 128);
    assert!(out.is_empty() && over);
}

#[test]
fn both_spellings_and_the_first_servers_answers_are_supported() {
    let settings = Settings {
        classic: ClassicForm::Line,
        spelling: Spelling::Short,
        unknown: UnknownStock::AsFirst,
    };
    let (out, _) = talk(&[b"buy 1 101\nbuy 2 1\nsell 2 1\n"], settings, 128);
    let text = "Not enough left stock\nNot enough left stock\n[sell] success\n";
    assert_eq!(out, text.as_bytes());
}

#[test]
fn padded_answers_are_8192_bytes_and_long_lists_end_at_a_line() {
    let (out, _) = talk(&[b"show\nbuy 1 1\nnonsense\n"], Settings::default(), 128);
    assert_eq!(out.len(), 3 * 8192);
    assert!(out.starts_with(b"1 100 5000\n3 2147483647 700\n\0"));
    assert!(out[8192..].starts_with(b"[buy] success\n\0"));
    let long: String = (1..2000).map(|id| format!("{id} 100 100\n")).collect();
    let mut state = State::new(Exchange::from_text(&long).unwrap(), 0);
    let mut out = Vec::new();
    let form = ioloom_exchange::Form::Classic(None);
    encode(form, &Settings::default(), &Answer::Shown(state.show()), &mut out);
    assert_eq!(out.len(), 8192);
    let text: Vec<u8> = out.iter().copied().take_while(|b| *b != 0).collect();
    assert!(text.ends_with(b"\n") && long.as_bytes().starts_with(&text) && text.len() > 8170);
}

#[test]
fn marked_answers_end_with_a_line() {
    let settings = Settings { classic: ClassicForm::Marked, ..Settings::default() };
    let (out, _) = talk(&[b"show\nbuy 1 1\nnonsense\n"], settings, 128);
    let text = "1 100 5000\n3 2147483647 700\nEOF\n[buy] success\nEOF\nInvalid command\nEOF\n";
    assert_eq!(String::from_utf8(out).unwrap(), text);
}

#[test]
fn padded_requests_execute_once() {
    let mut request = b"buy 1 1\n".to_vec();
    request.resize(8192, 0);
    let twice = [request.clone(), request].concat();
    assert_eq!(talk(&[&twice], line(), 128).0, b"[buy] success\n[buy] success\n");
    // Without a newline, the padding ends the line.
    assert_eq!(answers(b"buy 1 1\0\0\0\0show\0"), "[buy] success\n1 99 5000\n3 2147483647 700\n");
}

#[test]
fn numbered_protocol_repeats_answers_not_orders() {
    let asked = b"HELLO stock/2 client=alice\n1 BUY 1 10\n1 BUY 1 10\n2 BUY 1 1000 deadline=5\n\
        3 SHOW\n4 PING\nx\n5 BUY 1\n6 FLY\n7 BUY 1 1 soon=1\n8 EXIT\n9 BUY 1 1\n";
    assert_eq!(
        answers(asked),
        "HELLO stock/2 window=128\n1 OK 90 1\n1 OK 90 1\n2 ERR not-enough\n3 STOCKS 2 2\n\
         1 90 5000\n3 2147483647 700\n4 PONG\nERR bad-number\n5 ERR bad-number\n\
         6 ERR unknown-command\n7 ERR bad-number\n8 BYE\n"
    );
    assert_eq!(answers(b"HELLO stock/3\n1 BUY 1 1\n"), "ERR unknown-version\n");
    assert_eq!(answers(b"HELLO stock/2 client=\n1 BUY 1 1\n"), "ERR unknown-command\n");
    let unnamed = "HELLO stock/2 window=128\n1 OK 99 1\n1 OK 98 2\n";
    assert_eq!(answers(b"HELLO stock/2\n1 BUY 1 1\n1 BUY 1 1\n"), unnamed);
}

#[test]
fn redis_clients_are_supported() {
    let asked = b"*3\r\n$3\r\nBUY\r\n$1\r\n1\r\n$2\r\n10\r\n*3\r\n$4\r\nsell\r\n$1\r\n3\r\n$1\r\n1\r\n\
        *1\r\n$4\r\nSHOW\r\n*1\r\n$4\r\nPING\r\n*2\r\n$7\r\nCOMMAND\r\n$4\r\nDOCS\r\n*1\r\n$3\r\nFLY\r\n\
        *3\r\n$3\r\nBUY\r\n$1\r\n9\r\n$1\r\n1\r\n*2\r\n$3\r\nBUY\r\n$1\r\n9\r\n\
        *2\r\n$4\r\nSHOW\r\n$1\r\n9\r\n*1\r\n$4\r\nQUIT\r\n";
    assert_eq!(
        answers(asked),
        ":90\r\n-REFUSED too-many\r\n*2\r\n*3\r\n:1\r\n:90\r\n:5000\r\n*3\r\n:3\r\n:2147483647\r\n\
         :700\r\n+PONG\r\n*0\r\n-ERR unknown-command\r\n-REFUSED unknown-stock\r\n\
         -ERR bad-number\r\n-ERR bad-number\r\n+OK\r\n"
    );
    for bad in ["*x\r\n", "*-2\r\n", "*\r\n", "*1\r\nBUY\r\n", "*1\r\n$1\r\nabc", "*1\n"] {
        let (out, over) = talk(&[bad.as_bytes()], line(), 128);
        assert_eq!((out.as_slice(), over), (b"-ERR bad-frame\r\n".as_slice(), true), "{bad:?}");
    }
}

#[test]
fn http_requires_one_host_and_rejects_other_methods() {
    let status = |asked: &str| answers(asked.as_bytes()).split("\r\n").next().unwrap().to_owned();
    let get = |fields: &str| status(&format!("GET /show HTTP/1.1\r\n{fields}\r\n"));
    for fields in ["Host: x\r\n", "host:x:7004\r\n", "Host: [::1]:7004\r\n", "Host:\r\n"] {
        assert_eq!(get(fields), "HTTP/1.1 200 OK", "{fields:?}");
    }
    for fields in
        ["", "Host: x\r\nHost: x\r\n", "Host: x\r\nhost: y\r\n", "Host: x y\r\n", "Host: x,y\r\n"]
    {
        assert_eq!(get(fields), "HTTP/1.1 400 Bad Request", "{fields:?}");
    }
    assert_eq!(status("GET /show HTTP/1.0\r\n\r\n"), "HTTP/1.1 200 OK");
    for method in ["PATCH", "TRACE", "CONNECT", "PROPFIND", "M-SEARCH", "X", "DELETE", "OPTIONS"] {
        let text = answers(format!("{method} /show HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        assert!(text.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{method}: {text}");
        assert!(text.contains("\r\nAllow: GET, HEAD\r\n"), "{method}: {text}");
    }
    assert_eq!(status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    let ready = answers(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(ready.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{ready}");
    assert!(ready.ends_with("\r\n\r\nstopping\n"), "{ready}");
}

#[test]
fn http_pages_are_served_and_bodies_rejected() {
    let pages = answers(b"GET /show HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.0\r\n\r\n");
    assert_eq!(
        pages,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 28\r\n\r\n\
         1 100 5000\n3 2147483647 700\n\
         HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 7\r\n\
         Connection: close\r\n\r\nfine 1\n"
    );
    let status = |asked: &str| answers(asked.as_bytes()).split("\r\n").next().unwrap().to_owned();
    assert_eq!(status("GET /other HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 404 Not Found");
    assert_eq!(status("GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 200 OK");
    assert_eq!(status("POST /show HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
    for method in ["POST", "PUT"] {
        let asked =
            format!("{method} /show HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n123456789");
        assert_eq!(status(&asked), "HTTP/1.1 405 Method Not Allowed");
        assert!(answers(asked.as_bytes()).ends_with("Method Not Allowed\n"));
    }
    let absolute = |target: &str| status(&format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
    for target in ["http://x/show", "HTTP://x:7004/healthz?a=/b", "https://[::1]/metrics"] {
        assert_eq!(absolute(target), "HTTP/1.1 200 OK", "{target}");
    }
    for target in ["http://x", "http://x?/show", "ftp://x/show", "http:/show", "x", "*", "//x/show"]
    {
        assert_eq!(absolute(target), "HTTP/1.1 404 Not Found", "{target}");
    }
    let body = "GET /show HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n123456789";
    assert_eq!(status(body), "HTTP/1.1 400 Bad Request");
    assert_eq!(status("GET /show\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    assert!(answers(body.as_bytes()).ends_with("Bad Request\n"));
    // A space before the colon could hide a body from this server but not from a proxy.
    let smuggled = "GET /show HTTP/1.1\r\nContent-Length : 9\r\n\r\n123456789";
    assert_eq!(status(smuggled), "HTTP/1.1 400 Bad Request");
    let with_fields = |n: usize| {
        format!(
            "GET /show HTTP/1.1\r\n{}\r\n",
            "Host: b\r\n".to_owned() + &"A: b\r\n".repeat(n - 1)
        )
    };
    assert_eq!(status(&with_fields(100)), "HTTP/1.1 200 OK");
    assert_eq!(status(&with_fields(101)), "HTTP/1.1 431 Request Header Fields Too Large");
    let closes = "GET /show HTTP/1.1\r\nHost: x\r\nConnection: TE, Close\r\n\r\n";
    assert!(answers(closes.as_bytes()).contains("\r\nConnection: close\r\n"));
}

#[test]
fn http_head_sends_no_body() {
    let head = |page: &str| format!("HEAD /{page} HTTP/1.1\r\nHost: x\r\n\r\n");
    let get = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let asked = head("healthz") + &head("show") + &head("other") + get;
    let head_of = |status: &str, length: usize| {
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {length}\r\n\r\n"
        )
    };
    let fine = head_of("200 OK", 7);
    let expected =
        format!("{fine}{}{}{fine}fine 1\n", head_of("200 OK", 28), head_of("404 Not Found", 10));
    assert_eq!(answers(asked.as_bytes()), expected);
    let post = answers(b"POST /show HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(post.contains("\r\nAllow: GET, HEAD\r\n"), "{post}");
}

const TOKEN: &str = "correct-horse-battery";

/// Feeds text to a server that requires a token. Returns its output and whether it would close the
/// connection.
fn with_token(asked: &str) -> (String, bool) {
    let session = Session::new(Some(Token::new(TOKEN).unwrap().into()), 7);
    let (out, over) = talk_in(session, &[asked.as_bytes()], line(), 128);
    (String::from_utf8(out).unwrap(), over)
}

#[test]
fn resp_and_numbered_clients_present_the_token_once() {
    let auth = format!("*2\r\n$4\r\nAUTH\r\n${}\r\n{TOKEN}\r\n", TOKEN.len());
    let named = auth.replace("*2\r\n$4\r\nAUTH", "*3\r\n$4\r\nauth\r\n$1\r\nx");
    let buy = "*3\r\n$3\r\nBUY\r\n$1\r\n1\r\n$1\r\n9\r\n";
    for auth in [auth.as_str(), &named] {
        let (text, over) = with_token(&format!("{buy}{auth}{buy}{buy}"));
        assert_eq!((text.as_str(), over), ("-NOAUTH no-token\r\n+OK\r\n:91\r\n:82\r\n", false));
    }
    let wrong = auth.replace(TOKEN, &"x".repeat(TOKEN.len()));
    let denied = ("-NOAUTH no-token\r\n".to_owned(), true);
    assert_eq!(with_token(&format!("{wrong}{auth}{buy}")), denied, "one guess per connection");
    assert_eq!(with_token("*1\r\n$4\r\nQUIT\r\n"), ("+OK\r\n".to_owned(), true));

    let greeted = format!("HELLO stock/2 token={TOKEN} client=a\n1 BUY 1 1\n");
    assert_eq!(with_token(&greeted).0, "HELLO stock/2 window=128\n1 OK 99 1\n");
    let other = "x".repeat(TOKEN.len());
    for tokens in [[other.as_str(), TOKEN], [TOKEN, other.as_str()], [TOKEN, TOKEN]] {
        let [one, two] = tokens;
        let denied = ("ERR no-token\n".to_owned(), true);
        assert_eq!(with_token(&format!("HELLO stock/2 token={one} token={two}\n")), denied);
    }
    for bad in ["HELLO stock/2\n1 BUY 1 1\n", "HELLO stock/2 token=\n", "HELLO stock/2 token=x\n"] {
        assert_eq!(with_token(bad), ("ERR no-token\n".to_owned(), true), "{bad}");
    }
    // A token is accepted even if the server requires none.
    assert_eq!(answers(greeted.as_bytes()), with_token(&greeted).0);
}

/// Returns a server with a token for everything and one for reading.
fn with_two_tokens(asked: &str) -> (String, bool) {
    let read = Token::new(&TOKEN.to_uppercase()).unwrap();
    let tokens = vec![(Token::new(TOKEN).unwrap(), Rights::Trade), (read, Rights::Read)];
    let session = Session::new(Access::new(tokens), 1);
    let (out, over) = talk_in(session, &[asked.as_bytes()], line(), 128);
    (String::from_utf8(out).unwrap(), over)
}

#[test]
fn a_token_for_reading_permits_no_orders() {
    let read = TOKEN.to_uppercase();
    let auth = |token: &str| format!("*2\r\n$4\r\nAUTH\r\n${}\r\n{token}\r\n", token.len());
    let asked =
        format!("{0}BUY 1 1\r\nSELL 3 1\r\nSHOW\r\n{1}BUY 1 1\r\n", auth(&read), auth(TOKEN));
    let list = "*2\r\n*3\r\n:1\r\n:100\r\n:5000\r\n*3\r\n:3\r\n:2147483647\r\n:700\r\n";
    let denied = "-NOPERM read-only\r\n";
    let expected = format!("+OK\r\n{denied}{denied}{list}+OK\r\n:99\r\n");
    assert_eq!(with_two_tokens(&asked), (expected, false));
    // A second greeting without a token does not extend the rights.
    let asked = format!(
        "HELLO stock/2 token={read}\n1 BUY 1 1\nHELLO stock/2 client=a\n2 BUY 1 1\n3 SHOW\n"
    );
    let hello = "HELLO stock/2 window=128\n";
    let expected = format!(
        "{hello}1 ERR read-only\n{hello}2 ERR read-only\n3 STOCKS 2 0\n1 100 5000\n3 2147483647 700\n"
    );
    assert_eq!(with_two_tokens(&asked), (expected, false));
    let get = format!("GET /show HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {read}\r\n\r\n");
    assert!(with_two_tokens(&get).0.starts_with("HTTP/1.1 200 OK\r\n"));
    // A wrong token after a valid one closes the connection.
    let wrong = auth(&"x".repeat(20));
    let (text, over) = with_two_tokens(&format!("{}{wrong}BUY 1 1\r\n", auth(TOKEN)));
    assert_eq!((text.as_str(), over), ("+OK\r\n-NOAUTH no-token\r\n", true));
}

#[test]
fn each_token_of_a_numbered_client_is_checked() {
    let read = TOKEN.to_uppercase();
    let greet = |token: &str| format!("HELLO stock/2 client=x token={token}\n");
    let hello = "HELLO stock/2 window=128\n";
    // The latest token decides, in both directions.
    let asked = format!("{}{}1 BUY 1 1\n", greet(TOKEN), greet(&read));
    assert_eq!(with_two_tokens(&asked), (format!("{hello}{hello}1 ERR read-only\n"), false));
    let asked = format!("{}{}1 BUY 1 1\n", greet(&read), greet(TOKEN));
    assert_eq!(with_two_tokens(&asked), (format!("{hello}{hello}1 OK 99 1\n"), false));
    let wrong = "x".repeat(20);
    for bad in [wrong.as_str(), "", &format!("{TOKEN} token={TOKEN}")] {
        let asked = format!("{}{}1 BUY 1 1\n", greet(TOKEN), greet(bad));
        assert_eq!(with_two_tokens(&asked), (format!("{hello}ERR no-token\n"), true), "{bad}");
    }
}

#[test]
fn http_presents_the_token_in_each_request_and_the_original_protocol_is_rejected() {
    let get = |header: &str| format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{header}\r\n");
    let fine = get(&format!("authorization: bearer {TOKEN}\r\n"));
    let (text, over) = with_token(&fine.repeat(2));
    assert_eq!((text.matches("HTTP/1.1 200 OK").count(), over), (2, false));
    let twice = format!("Authorization: Bearer {TOKEN}\r\n").repeat(2);
    let bads = [
        String::new(),
        "Authorization: Bearer x\r\n".to_owned(),
        "Authorization: Basic eDp4\r\n".to_owned(),
        format!("Authorization: Bearer {TOKEN} junk\r\n"),
        format!("Authorization: Bearer{TOKEN}\r\n"),
        format!("Authorization: Bearer\t{TOKEN}\r\n"),
        format!("Authorization: Bearer {TOKEN},Bearer {TOKEN}\r\n"),
        format!("Authorization: {TOKEN}\r\n"),
        format!("Authorization: Bearer {TOKEN}\r\nAuthorization: Bearer x\r\n"),
        format!("Authorization: Bearer x\r\nAuthorization: Bearer {TOKEN}\r\n"),
        twice,
    ];
    for bad in &bads {
        let (text, over) = with_token(&format!("{}{fine}", get(bad)));
        assert!(text.starts_with("HTTP/1.1 401 Unauthorized\r\n") && over, "{text}");
        assert!(text.contains("WWW-Authenticate: Bearer\r\n") && !text.contains("200"), "{text}");
    }
    let mut session = Session::new(Some(Token::new(TOKEN).unwrap().into()), 7);
    assert!(session.awaits_token());
    session.feed(&fine.as_bytes()[..9], 128, &mut |_| {});
    assert!(session.awaits_token(), "an incomplete request presents nothing");
    session.feed(&fine.as_bytes()[9..], 128, &mut |_| {});
    assert!(!session.awaits_token());
    assert_eq!(with_token("show\nbuy 1 1\n"), ("Token needed\n".to_owned(), true));
    assert_eq!(with_token("s"), ("Token needed\n".to_owned(), true));
}

#[test]
fn endless_requests_end_at_8192_bytes() {
    for (begin, says) in [
        ("buy ", "Line too long\n"),
        ("HELLO stock/2 ", "ERR too-long\n"),
        ("*1\r\n$8190\r\n", "-ERR too-long\r\n"),
        ("*1\r\n$9000\r\n", "-ERR too-long\r\n"),
        ("GET /", "HTTP/1.1 431 Request Header Fields Too Large\r\n"),
    ] {
        let flood = vec![b'x'; 1000];
        let mut pieces = vec![begin.as_bytes()];
        pieces.extend(std::iter::repeat_n(flood.as_slice(), 50));
        let (out, over) = talk(&pieces, line(), 128);
        assert!(over && out.starts_with(says.as_bytes()), "{begin:?}");
    }
}

#[test]
fn incomplete_requests_are_buffered_and_order_nothing() {
    let mut session = Session::default();
    let mut requests = Vec::new();
    for byte in b"buy 1 1" {
        session.feed(&[*byte], 128, &mut |request| requests.push(request));
    }
    assert!(requests.is_empty());
    assert_eq!(session.pending_bytes(), 7);
    session.feed(b"\n", 128, &mut |request| requests.push(request));
    assert_eq!((requests.len(), session.pending_bytes()), (1, 0));
}

fn conversation() -> impl Strategy<Value = Vec<u8>> {
    let lines = prop::collection::vec(
        prop_oneof![
            Just("show\n"),
            Just("buy 1 3\n"),
            Just("sell 1 2\r\n"),
            Just("\n"),
            Just("x y\n"),
            Just("buy 1\0\0\0"),
            Just("sell 3 1\n"),
        ],
        0..12,
    );
    let numbered = prop::collection::vec(
        prop_oneof![Just("1 BUY 1 1\n"), Just("2 SELL 1 9\n"), Just("3 SHOW\n"), Just("z\n")],
        0..12,
    );
    let resp = prop::collection::vec(
        prop_oneof![
            8 => Just("*3\r\n$3\r\nBUY\r\n$1\r\n1\r\n$1\r\n2\r\n"),
            8 => Just("*1\r\n$4\r\nSHOW\r\n"),
            8 => Just("*1\r\n$4\r\nPING\r\n"),
            4 => Just("*0\r\n"),
            // Closes the connection.
            1 => Just("*00\r\n"),
        ],
        0..12,
    );
    let http = prop::collection::vec(
        prop_oneof![
            Just("GET /show HTTP/1.1\r\nHost: x\r\n\r\n"),
            Just("GET /x HTTP/1.1\r\nA: b\r\n\r\n")
        ],
        0..6,
    );
    prop_oneof![
        lines.prop_map(|all| all.concat().into_bytes()),
        numbered.prop_map(|all| format!("HELLO stock/2 client=a\n{}", all.concat()).into_bytes()),
        resp.prop_map(|all| all.concat().into_bytes()),
        http.prop_map(|all| all.concat().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..300),
    ]
}

proptest! {
    #[test]
    fn splitting_the_bytes_changes_nothing(
        bytes in conversation(),
        mut cuts in prop::collection::vec(0..400usize, 0..20),
        requests_max in 1..5usize,
    ) {
        cuts.retain(|cut| *cut < bytes.len());
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for cut in cuts {
            pieces.push(&bytes[from..cut]);
            from = cut;
        }
        pieces.push(&bytes[from..]);
        let whole = talk(&[&bytes], line(), usize::MAX);
        prop_assert_eq!(talk(&pieces, line(), requests_max), whole);
    }
}
