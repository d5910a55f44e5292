//! Bytes from a connection: regardless of how they are split, the same requests result, buffers
//! stay bounded, and every request can be answered.
#![no_main]

use ioloom_exchange::{Answer, LINE_MAX, Local, Request, Session, Settings, encode};
use libfuzzer_sys::fuzz_target;

fn requests(pieces: &[&[u8]], most: usize) -> (Vec<Request>, bool) {
    let (mut session, mut requests) = (Session::default(), Vec::new());
    for piece in pieces {
        session.feed(piece, most, &mut |request| requests.push(request));
        while session.has_more() && !session.is_over() {
            session.feed(b"", most, &mut |request| requests.push(request));
        }
        assert!(session.pending_bytes() < LINE_MAX);
    }
    (requests, session.is_over())
}

fuzz_target!(|input: (&[u8], u8, u8)| {
    let (bytes, cut, most) = input;
    let whole = requests(&[bytes], usize::MAX);
    let step = usize::from(cut).max(1);
    let pieces: Vec<&[u8]> = bytes.chunks(step).collect();
    assert_eq!(requests(&pieces, usize::from(most).max(1)), whole);
    for request in &whole.0 {
        let mut out = Vec::new();
        encode(request.form, &Settings::default(), &Answer::Local(Local::Pong), &mut out);
    }
});
