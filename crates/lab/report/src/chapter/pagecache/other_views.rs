//! The page cache beyond one file: what remains after dropping all caches, a file and its device,
//! and who opens a redirection target. Each section has the published numbers, if any, and an
//! explanation.

use crate::chapter::arms::{arm, number, row};
use crate::chapter::causes::theory;
use crate::group::Group;
use crate::input::Input;
use crate::markup::Markup;
use crate::page::parts;
use crate::quantity::percent;
use ioloom_model::units::format_size;

const DROP: (&str, &str) = ("drop", "each-16MiB");
const DEVICE: (&str, &str) = ("device", "first-16MiB");
const SHELL: (&str, &str) = ("shell", "every-shell");
/// Shells in the order of the text.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "ksh", "busybox", "fish"];

/// Kinds of pages, and the prefix of their metrics.
const KINDS: [(&str, &str); 5] = [
    ("clean pages of a file that was read", "clean"),
    ("dirty pages of a file that was not synced", "changed"),
    ("pages of a file in memory (tmpfs)", "shared"),
    ("page cache of the machine", "cached"),
    ("including shared memory", "shmem"),
];

/// Writes the three sections; a section is omitted if its experiment did not run.
pub(super) fn sections(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    dropped(m, input, groups);
    device(m, input, groups);
    shell(m, input, groups);
}

/// Formats a number of bytes that may be unknown.
fn size(value: Option<f64>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |bytes| format_size(bytes as u64))
}

/// Formats a change in bytes with its sign.
fn change(value: Option<f64>) -> String {
    let sign = if value.is_some_and(|bytes| bytes < 0.0) { "-" } else { "" };
    format!("{sign}{}", size(value.map(f64::abs)))
}

/// Returns the published machine's page cache and shared memory in bytes.
fn published(input: &Input, when: &str) -> Option<(f64, f64)> {
    let table = input.published.get("002_free")?;
    let row = table.rows.iter().find(|row| row[0] == when)?;
    let of = |column: &str| {
        let at = table.columns.iter().position(|name| name == column)?;
        row[at].parse::<f64>().ok()
    };
    Some((of("cache_kib")? * 1024.0, of("shared_kib")? * 1024.0))
}

fn dropped(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    if arm(groups, DROP.0, DROP.1).is_none() {
        return;
    }
    let of = |metric: &str| number(input, groups, DROP.0, DROP.1, metric);
    m.tag("h3").text("Dropping all caches");
    let columns = [
        ("resident", false),
        ("before", true),
        ("after writing 3 to drop_caches", true),
        ("after a sync and 3 again", true),
    ];
    parts::table(m, "plain", &columns, |m| {
        let ends = published(input, "before drop").zip(published(input, "after drop"));
        if let Some((before, after)) = ends {
            let known = |bytes: f64| size(Some(bytes));
            row(m, ["published: page cache", &known(before.0), &known(after.0), "–"]);
            row(m, ["published: including shared memory", &known(before.1), &known(after.1), "–"]);
        }
        for (what, kind) in KINDS {
            let at = |when: &str| {
                of(&format!("{kind}_{when}_bytes"))
                    .map_or_else(|| "not run".to_owned(), |bytes| size(Some(bytes)))
            };
            row(m, [what, &at("before"), &at("dropped"), &at("synced")]);
        }
    });
    m.tag("p")
        .a("class", "lead")
        .text("The caches of the whole system are dropped only with --drop-caches.");
    theory(
        m,
        "Documentation/admin-guide/sysctl/vm.rst of the kernel",
        "Only pages that can be read again are dropped: clean pages also exist on the device. A \
        dirty page has no other copy until it is written, so it remains until a sync. A file in \
        memory has no device to be read from; it counts as page cache and is never dropped.",
    );
}

fn device(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    if arm(groups, DEVICE.0, DEVICE.1).is_none() {
        return;
    }
    let of = |metric: &str| number(input, groups, DEVICE.0, DEVICE.1, metric);
    m.tag("h3").text("A file and its device");
    let Some(range) = of("range_bytes") else {
        m.tag("p").text(
            "Not run: the file's device cannot be opened here. Published without a number: a \
            device's buffer cache is separate from the page cache.",
        );
        return;
    };
    let columns = [
        ("resident after", false),
        ("reading through the file", true),
        ("reading through the device", true),
        ("dropping the pages of the device", true),
    ];
    parts::table(m, "plain", &columns, |m| {
        for (what, whose) in [("pages of the file", "file"), ("pages of the device", "device")] {
            let at = |when: &str| size(of(&format!("{whose}_pages_{when}_bytes")));
            row(m, [what, &at("by_file"), &at("by_device"), &at("after_advice")]);
        }
        for (what, level) in
            [("growth of the machine's page cache", "cache"), ("growth of its Buffers", "buffers")]
        {
            let by = |whom: &str| change(of(&format!("{level}_growth_by_{whom}_bytes")));
            row(m, [what, &by("file"), &by("device"), "–"]);
        }
    });
    let fresh = |metric: &str| {
        let share = of(metric).zip(of("fresh_bytes")).map(|(part, all)| percent(part / all));
        share.unwrap_or_else(|| "unknown".to_owned())
    };
    let old = ["fresh_old_before_sync_bytes", "fresh_old_after_sync_bytes"];
    let coherent = match old.map(&of) {
        shares if shares.iter().flatten().any(|bytes| *bytes > 0.0) => {
            "The two were not coherent: after"
        }
        [Some(_), Some(_)] => "No stale bytes were read: after",
        _ => "After",
    };
    m.tag("p").a("class", "lead").text(&format!(
        "Published without a number: a device's buffer cache is separate from the page cache. \
        Here, {} were read through the file and through the device; {} of them were identical. \
        {coherent} the file was rewritten, the device returned {} of the old bytes before a sync, \
        {} of them after it, and {} of the new ones after its pages were evicted.",
        format_size(range as u64),
        size(of("equal_bytes")),
        fresh(old[0]),
        fresh(old[1]),
        fresh("fresh_new_after_advice_bytes"),
    ));
    theory(
        m,
        "proc_meminfo(5), posix_fadvise(2)",
        "There is one cache with separate address spaces: pages are looked up by file and offset, and \
        a device is a file too, so the same bytes can be cached twice. Pages of a device count as \
        Buffers.",
    );
}

fn shell(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let of = |metric: &str| number(input, groups, SHELL.0, SHELL.1, metric);
    let Some(count) = of("shells") else { return };
    let there = |shell: &&&str| of(&format!("{shell}_there")) == Some(1.0);
    let (here, missing): (Vec<&&str>, Vec<&&str>) = SHELLS.iter().partition(|shell| there(shell));
    let each = here.iter().map(|shell| {
        let began = of(&format!("{shell}_began")) == Some(1.0);
        let did = if began { "started" } else { "not started" };
        match of(&format!("{shell}_exit_code")) {
            Some(code) => format!("{shell}: {did}, exit code {code}"),
            None => format!("{shell}: {did}"),
        }
    });
    let each = each.collect::<Vec<_>>().join("; ");
    let missing = missing.into_iter().copied().collect::<Vec<_>>().join(", ");
    let missing = if missing.is_empty() { "none".to_owned() } else { missing };
    let worked = |metric: &str| match of(metric) {
        Some(1.0) => "worked",
        Some(_) => "failed",
        None => "was not tested without privileges",
    };
    m.tag("h3").text("Who opens a redirection target");
    m.tag("p").text(&format!(
        "Published: sudo echo 3 > /proc/sys/vm/drop_caches fails because of zsh. Here, {count} \
        shells ran a command with its output redirected to a file that the user cannot write: \
        {each}. Not installed: {missing}. A shell inside the privileged process {}, a privileged \
        tee {}.",
        worked("privileged_shell_began"),
        worked("privileged_tee_wrote"),
    ));
    theory(
        m,
        "POSIX, Shell Command Language, Redirection",
        "The shell opens the file as its own user before it starts the command, and sudo is that \
        command. The process that opens the file needs the permission.",
    );
}
