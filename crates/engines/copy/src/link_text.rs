//! Text of a symbolic link that `cp -s` makes, and why it may be refused.
//!
//! Both the decision about a target and the making of the link need it.

use crate::error::CopyError;
use crate::route::Route;
use ioloom_failure::{Operation, quoted};
use ioloom_sys::attr;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns the text of a symbolic link to the source. A relative one leads there only from the
/// current directory.
pub(crate) fn link_text(route: &Route<'_>) -> Result<CString, CopyError> {
    let (from, to) = (route.paths)();
    let above = to.parent().filter(|above| !above.as_os_str().is_empty());
    let is_here = || {
        let identity = |path: &Path| attr::of_path(path, true).map(|attr| attr.identity()).ok();
        above.is_none_or(|above| {
            identity(above).is_some_and(|a| identity(Path::new(".")) == Some(a))
        })
    };
    if !from.is_absolute() && !is_here() {
        let text = "can make relative symbolic links only in current directory";
        return Err(CopyError::whole(&to, format!("{}: {text}", bare(&to))));
    }
    CString::new(from.as_os_str().as_bytes())
        .map_err(|_| CopyError::cannot(Operation::Copy, &from, "the name contains a NUL byte"))
}

/// Quotes a path only if a shell would interpret it. Some characters matter only at its beginning.
fn bare(path: &Path) -> String {
    let text = quoted(path).to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%]{}~#".contains(c);
    match text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
        Some(name) if name.chars().all(is_plain) && !name.starts_with(['~', '#']) => {
            name.to_owned()
        }
        _ => text,
    }
}
