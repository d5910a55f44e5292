//! How many connections the limit on open files permits.

use crate::exit::Failure;
use ioloom_failure::quoted;
use ioloom_serve::Limits;
use ioloom_sys::{descriptor_table, proc};
use std::path::Path;

/// File descriptors reserved for listeners, the store, standard streams and others.
const DESCRIPTORS_OTHER: usize = 64;

/// Returns the connection limit: the requested number, or the default capped by the limit on open
/// files, which is raised if possible. `file` is the limits file that contains the requested number.
///
/// # Errors
/// The limit on open files is too low for the requested number, or for any connection.
pub(super) fn connections(asked: Option<usize>, file: Option<&Path>) -> Result<usize, Failure> {
    // On failure the current limit applies below.
    let _ = proc::raise_open_files_limit();
    let connections = fitting(asked, limit(), file)?;
    // Before the first thread: while a table grows later, no connection can be accepted.
    let places = connections.saturating_add(DESCRIPTORS_OTHER);
    let _ = descriptor_table::make_room(u32::try_from(places).unwrap_or(u32::MAX));
    Ok(connections)
}

/// Returns a warning if the limit on open files permits only this number of connections, fewer than
/// the default.
pub(super) fn warning(connections: usize) -> Option<String> {
    let limit = limit();
    let is_capped = connections == possible(limit) && connections < Limits::default().connections;
    is_capped.then(|| {
        format!(
            "at most {connections} connections are served, because the limit on open files is \
             {limit}; raise it with 'ulimit -n'"
        )
    })
}

fn limit() -> usize {
    let limit = proc::open_files_limit().and_then(|limit| usize::try_from(limit).ok());
    limit.unwrap_or(usize::MAX)
}

/// Returns the number of connections that this limit on open files permits.
fn possible(limit: usize) -> usize {
    limit.saturating_sub(DESCRIPTORS_OTHER)
}

fn fitting(asked: Option<usize>, limit: usize, file: Option<&Path>) -> Result<usize, Failure> {
    let possible = possible(limit);
    if possible == 0 {
        return Err(Failure::refused(format!(
            "a server needs more than {DESCRIPTORS_OTHER} open files, and the limit is {limit}; \
             raise it with 'ulimit -n'"
        )));
    }
    match asked {
        None => Ok(Limits::default().connections.min(possible)),
        Some(asked) if asked <= possible => Ok(asked),
        Some(asked) => {
            let (source, name) = match file {
                Some(path) => (format!("cannot use limits file {}: ", quoted(path)), "connections"),
                None => (String::new(), "--connections"),
            };
            Err(Failure::refused(format!(
                "{source}{asked} connections need {} open files, and the limit is {limit}; use \
                 {name} {possible} or fewer, or raise the limit with 'ulimit -n'",
                asked.saturating_add(DESCRIPTORS_OTHER),
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fitting;
    use crate::exit::Exit;
    use ioloom_serve::Limits;
    use std::path::Path;

    #[test]
    fn limits_on_open_files_that_permit_too_few_connections_are_named() {
        for (asked, limit, words) in [
            (None, 16, "the limit is 16;"),
            (Some(5), 16, "the limit is 16;"),
            (None, 64, "the limit is 64;"),
            (
                Some(5),
                68,
                "5 connections need 69 open files, and the limit is 68; use --connections 4",
            ),
        ] {
            let failure = fitting(asked, limit, None).unwrap_err();
            assert_eq!(failure.exit, Exit::Refused);
            assert!(failure.message.contains(words), "{}", failure.message);
        }
        assert_eq!(fitting(None, 65, None).unwrap(), 1);
        assert_eq!(fitting(Some(5), 69, None).unwrap(), 5);
        assert_eq!(fitting(None, usize::MAX, None).unwrap(), Limits::default().connections);
    }

    #[test]
    fn a_number_in_the_limits_file_is_not_reported_as_a_flag() {
        let failure = fitting(Some(5), 68, Some(Path::new("lim"))).unwrap_err();
        let expected = "cannot use limits file 'lim': 5 connections need 69 open files, and the \
                        limit is 68; use connections 4 or fewer, or raise the limit with 'ulimit -n'";
        assert_eq!(failure.message, expected);
        // The file did not cause this error.
        let failure = fitting(Some(5), 64, Some(Path::new("lim"))).unwrap_err();
        assert!(failure.message.starts_with("a server needs"), "{}", failure.message);
    }
}
