//! The values of flags of `cp`.

use crate::values::{self, Choice};
use clap::builder::{OsStringValueParser, TypedValueParser};
use ioloom_copy::{Durable, HashKind, Mode, Verify, When};
use std::path::PathBuf;

/// Which existing files are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Update {
    Older,
    All,
    None,
}

pub(super) fn update_words() -> Choice<Update> {
    values::choice([("all", Update::All), ("none", Update::None), ("older", Update::Older)])
        .abbreviated("--update")
}

pub(super) fn reflink_words() -> Choice<When> {
    values::choice([("auto", When::Auto), ("always", When::Always), ("never", When::Never)])
        .abbreviated("--reflink")
}

pub(super) fn sparse_words() -> Choice<When> {
    values::choice([("never", When::Never), ("auto", When::Auto), ("always", When::Always)])
        .abbreviated("--sparse")
}

/// Accepts any path. clap refuses empty ones; GNU cp reports them like other missing files.
pub(super) fn any_path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

pub(super) fn durable_words() -> Choice<Durable> {
    values::choice([("none", Durable::None), ("file", Durable::File), ("full", Durable::Full)])
}

pub(super) fn mode_words() -> Choice<Mode> {
    let measured_only = |mode: &Mode| *mode == Mode::Mmap;
    let listed = Mode::ALL.into_iter().filter(|mode| !measured_only(mode));
    values::choice(listed.map(|mode| (mode.word(), mode)))
        .hidden(Mode::ALL.into_iter().filter(measured_only).map(|mode| (mode.word(), mode)))
}

pub(super) fn verify_words() -> Choice<Verify> {
    values::choice([
        ("in-flight", Verify::InFlight),
        ("cache", Verify::Cache),
        ("device", Verify::Device),
    ])
    .hidden([("none", Verify::None)])
}

pub(super) fn hash_words() -> Choice<HashKind> {
    values::choice([("blake3", HashKind::Blake3), ("md5", HashKind::Md5)])
}
