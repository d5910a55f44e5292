//! Files as a `Read`.

use crate::support::{content, guarded, lacks, make, plan, roots};
use ioloom::{Cancel, Cause, Error, OnError};
use std::io::{BufRead, Read};
use std::sync::Mutex;

const PLANS: [&str; 5] = [
    "read/window:l=8,p=2",
    "read/threads:n=2",
    "nowait/window:l=16,p=2",
    "uring/window:l=16,p=2",
    "direct:read/threads:n=2",
];

#[test]
fn readers_see_every_byte_once_and_in_order() {
    let sizes = [0, 1, 4095, 4096, 4097, 100_000, 3 << 20, 8192];
    let (_dir, paths) = make(&roots()[0], &sizes);
    for text in PLANS.into_iter().map(Some).chain([None]) {
        let paths = paths.clone();
        guarded(format!("{text:?}"), move || {
            let files = ioloom::list(&paths).ordered();
            let files = match text {
                Some(text) => files.pin(plan(&format!("{text}/memory=2MiB"))),
                None => files.memory(2 << 20),
            };
            let run = files.chunks(4096).try_map_reader(|path, reader| {
                let mut bytes = Vec::new();
                reader.read_to_end(&mut bytes).map(|_| (path.to_owned(), bytes))
            });
            match run {
                Err(error) => assert!(lacks(&plan(text.unwrap()), &error), "{text:?}: {error}"),
                Ok(run) => {
                    for (at, (path, bytes)) in run.value.iter().enumerate() {
                        assert_eq!(path, &paths[at]);
                        assert!(*bytes == content(at as u64 + 1, sizes[at]), "{text:?}: file {at}");
                    }
                    assert_eq!(run.value.len(), sizes.len());
                    assert!(run.measured.budget_peak_bytes <= 2 << 20, "{text:?}");
                }
            }
        });
    }
}

#[test]
fn chunks_are_not_single_bytes_if_no_size_is_chosen() {
    let (_dir, paths) = make(&roots()[0], &[1 << 20]);
    let chunks = |_: &std::path::Path, reader: &mut ioloom::Reader| {
        let mut chunks = 0;
        while let Ok(chunk) = reader.fill_buf()
            && !chunk.is_empty()
        {
            let bytes = chunk.len();
            reader.consume(bytes);
            chunks += 1;
        }
        chunks
    };
    let run = ioloom::list(&paths).pieces().map_reader(chunks).unwrap();
    assert!((1..=16).contains(&run.value[0]), "{:?}", run.value);
    // A budget that other forms accept.
    let run = ioloom::list(&paths).memory(100 << 10).chunks(1 << 20).map_reader(chunks).unwrap();
    assert!(run.value[0] <= 2048, "{:?}", run.value);
}

#[test]
fn a_function_that_returns_early_ends_its_file() {
    let (_dir, paths) = make(&roots()[0], &[2 << 20; 10]);
    guarded("early".to_owned(), move || {
        let head = |reader: &mut ioloom::Reader| {
            let mut head = [0; 100];
            reader.read_exact(&mut head).map(|()| head[0])
        };
        let run =
            ioloom::list(&paths).chunks(16 << 10).map_reader(|_, reader| head(reader).unwrap());
        let run = run.unwrap();
        assert_eq!(run.value.len(), 10);
        assert_eq!(run.measured.bytes, 10 * (16 << 10), "one chunk of each file");
        // Without a single call, too.
        let run = ioloom::list(&paths).chunks(16 << 10).map_reader(|path, _| path.to_owned());
        assert_eq!(run.unwrap().value.len(), 10);
    });
}

#[test]
fn errors_and_panics_of_readers_come_out() {
    let (_dir, mut paths) = make(&roots()[0], &[50_000; 20]);
    paths[3] = "no/such/file".into();
    guarded("errors".to_owned(), move || {
        let files = || ioloom::list(&paths).on_error(OnError::Collect);
        let run = files().chunks(10_000).try_map_reader(|path, reader| {
            let read = std::io::copy(reader, &mut std::io::sink()).unwrap();
            if path == paths[7] { Err(read) } else { Ok(()) }
        });
        let run = run.unwrap();
        assert_eq!((run.value.len(), run.failed), (18, 2));
        assert!(matches!(run.errors[0].cause, Cause::Io(_)));
        assert!(matches!(run.errors[1].cause, Cause::Function(50_000)));
        let run = ioloom::list(&paths).chunks(10_000).try_map_reader(|path, reader| {
            std::io::copy(reader, &mut std::io::sink()).unwrap();
            if path == paths[0] { Err("stop") } else { Ok(()) }
        });
        assert!(matches!(run, Err(Error::File(_))), "{run:?}");
        let caught = std::panic::catch_unwind(|| {
            files().chunks(10_000).map_reader(|path, reader| {
                std::io::copy(reader, &mut std::io::sink()).unwrap();
                assert!(path != paths[9], "reader");
            })
        });
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"reader"));
    });
}

#[test]
fn a_reader_does_not_blame_its_file_for_the_end_of_the_run() {
    let (_dir, paths) = make(&roots()[0], &[4 << 20; 4]);
    guarded("a cancelled run with readers".to_owned(), move || {
        let token = Cancel::new();
        let said = Mutex::new(Vec::new());
        let run = ioloom::list(&paths).cancel(&token).chunks(4096).map_reader(|_, reader| {
            let begun = reader.read_exact(&mut [0]);
            token.cancel();
            if let Err(error) = begun.and_then(|()| std::io::copy(reader, &mut std::io::sink())) {
                said.lock().unwrap().push(error.to_string());
            }
        });
        assert!(matches!(run, Err(Error::Cancelled { .. })), "{run:?}");
        let said = said.into_inner().unwrap();
        let both = |text: &String| text.ends_with("a read failed, or the run ended");
        assert!(!said.is_empty() && said.iter().all(both), "{said:?}");
    });
}
