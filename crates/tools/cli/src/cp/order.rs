//! Flags whose order on the command line matters: `-a -p -d --preserve --no-preserve` and
//! `-P -L -H`. Each changes what those before it have set, as in GNU cp.

use crate::values::{self, Choice};
use clap::ArgMatches;
use clap::parser::ValueSource;
use ioloom_copy::{Follow, Preserve};

/// An attribute of --preserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attribute {
    Mode,
    Ownership,
    Timestamps,
    Links,
    Xattr,
    Context,
    All,
}

pub(super) fn attribute_words(option: &'static str) -> Choice<Attribute> {
    values::choice([
        ("mode", Attribute::Mode),
        ("timestamps", Attribute::Timestamps),
        ("ownership", Attribute::Ownership),
        ("links", Attribute::Links),
        ("context", Attribute::Context),
        ("xattr", Attribute::Xattr),
        ("all", Attribute::All),
    ])
    .abbreviated(option)
}

/// One flag, in the order of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// --preserve or --no-preserve.
    Preserve(Attribute, bool),
    /// -a.
    Archive,
    /// -p.
    Usual,
    /// -d.
    Links,
    /// -P, -L or -H.
    Follow(Follow),
}

/// Returns the flags in the order in which they were given.
pub(super) fn steps(matches: &ArgMatches) -> Vec<Step> {
    let mut steps: Vec<(usize, Step)> = Vec::new();
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    for (id, step) in [
        ("archive", Step::Archive),
        ("p", Step::Usual),
        ("d", Step::Links),
        ("no_dereference", Step::Follow(Follow::Never)),
        ("dereference", Step::Follow(Follow::Always)),
        ("dereference_args", Step::Follow(Follow::Roots)),
    ] {
        let indices = matches.indices_of(id).filter(|_| is_given(id)).into_iter().flatten();
        steps.extend(indices.map(|at| (at, step)));
    }
    for (id, value) in [("preserve", true), ("no_preserve", false)] {
        let words = matches.get_many::<Attribute>(id).into_iter().flatten();
        let indices = matches.indices_of(id).into_iter().flatten();
        let found = indices.zip(words).map(|(at, word)| (at, Step::Preserve(*word, value)));
        steps.extend(found.filter(|_| is_given(id)));
    }
    steps.sort_by_key(|(at, _)| *at);
    steps.into_iter().map(|(_, step)| step).collect()
}

/// What the flags together preserve.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Preserved {
    pub(super) preserve: Preserve,
    /// Whether preserving permissions was explicitly disabled.
    pub(super) plain_mode: bool,
    /// Whether extended attributes were explicitly requested.
    pub(super) needs_xattrs: bool,
    /// Whether the security label was explicitly requested.
    pub(super) needs_context: bool,
}

/// Applies the flags one after another.
pub(super) fn preserved(steps: &[Step]) -> Preserved {
    let mut all = Preserved::default();
    // Whether the label is preserved only as one of the extended attributes.
    let mut only_with_xattrs = false;
    for step in steps {
        let preserve = &mut all.preserve;
        match *step {
            Step::Archive => *preserve = Preserve::ALL,
            Step::Usual => {
                *preserve = Preserve { mode: true, owner: true, times: true, ..*preserve };
            }
            Step::Links => preserve.links = true,
            Step::Follow(_) => {}
            Step::Preserve(attribute, value) => match attribute {
                Attribute::Mode => preserve.mode = value,
                Attribute::Ownership => preserve.owner = value,
                Attribute::Timestamps => preserve.times = value,
                Attribute::Links => preserve.links = value,
                Attribute::Xattr => {
                    (preserve.xattrs, all.needs_xattrs) = (value, value);
                    // The label is one of them. Without them, it stays if another flag requested it.
                    let only = only_with_xattrs || !preserve.context;
                    (preserve.context, only_with_xattrs) = (value || !only, value && only);
                }
                Attribute::Context => (preserve.context, all.needs_context) = (value, value),
                Attribute::All => {
                    *preserve = if value { Preserve::ALL } else { Preserve::default() };
                }
            },
        }
        if let Step::Preserve(Attribute::Mode | Attribute::All, value) = *step {
            all.plain_mode = !value;
        }
        if let Step::Archive | Step::Preserve(Attribute::Context | Attribute::All, _) = *step {
            only_with_xattrs = false;
        }
    }
    all
}

/// Returns which links are followed: by the last flag that says so.
pub(super) fn follow(steps: &[Step], recursive: bool) -> Follow {
    let usual = if recursive { Follow::Never } else { Follow::Always };
    let last = steps.iter().rev().find_map(|step| match step {
        Step::Follow(follow) => Some(*follow),
        Step::Archive | Step::Links => Some(Follow::Never),
        _ => None,
    });
    last.unwrap_or(usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_flag_overrides_an_earlier_one() {
        let off = |attribute| Step::Preserve(attribute, false);
        let on = |attribute| Step::Preserve(attribute, true);
        let mode = |steps: &[Step]| {
            let all = preserved(steps);
            (all.preserve.mode, all.plain_mode && !all.preserve.mode)
        };
        assert_eq!(mode(&[off(Attribute::Mode), on(Attribute::All)]), (true, false));
        assert_eq!(mode(&[off(Attribute::Mode), Step::Archive]), (true, false));
        assert_eq!(mode(&[off(Attribute::Mode), Step::Usual]), (true, false));
        assert_eq!(mode(&[Step::Archive, off(Attribute::Mode)]), (false, true));
        assert_eq!(mode(&[Step::Usual, off(Attribute::All)]), (false, true));
        assert!(preserved(&[Step::Archive]).preserve.xattrs);
        assert!(!preserved(&[Step::Archive]).needs_xattrs);
        assert!(preserved(&[Step::Archive, on(Attribute::Xattr)]).needs_xattrs);
        let label = |steps: &[Step]| {
            let all = preserved(steps);
            (all.preserve.xattrs, all.preserve.context, all.needs_context)
        };
        assert_eq!(label(&[on(Attribute::Context)]), (false, true, true));
        assert_eq!(label(&[Step::Archive]), (true, true, false));
        assert_eq!(label(&[Step::Archive, off(Attribute::Context)]), (true, false, false));
        assert_eq!(label(&[Step::Archive, off(Attribute::Xattr)]), (false, true, false));
        assert_eq!(label(&[on(Attribute::Xattr), off(Attribute::Context)]), (true, false, false));
        let (with, without) = (on(Attribute::Xattr), off(Attribute::Xattr));
        assert_eq!(label(&[with, without]), (false, false, false));
        assert_eq!(label(&[with, with, without]), (false, false, false));
        assert_eq!(label(&[with, Step::Archive, without]), (false, true, false));
        assert_eq!(label(&[Step::Archive, with, without]), (false, true, false));
        assert_eq!(label(&[with, on(Attribute::Context), without]), (false, true, true));
        let both = [on(Attribute::Context), off(Attribute::Context)];
        assert_eq!(label(&both), (false, false, false));
        let all = Step::Follow(Follow::Always);
        assert_eq!(follow(&[all, Step::Archive], true), Follow::Never);
        assert_eq!(follow(&[Step::Archive, all], true), Follow::Always);
        assert_eq!(follow(&[Step::Usual], true), Follow::Never);
        assert_eq!(follow(&[], false), Follow::Always);
    }
}
