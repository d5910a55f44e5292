//! What lies beside the pages of one file: what a drop of all caches leaves, a file and its device, who
//! opens the file of a redirection. Each with the published numbers, where there are some, and why.

use crate::chapter::arms::{arm, number, row};
use crate::group::Group;
use crate::input::Input;
use crate::markup::Markup;
use crate::page::parts;
use crate::quantity::percent;
use ioloom_model::units::format_size;

const DROP: (&str, &str) = ("drop", "each-16MiB");
const DEVICE: (&str, &str) = ("device", "first-16MiB");
const SHELL: (&str, &str) = ("shell", "every-shell");
/// Shells in the order in which they are named.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "ksh", "busybox", "fish"];

/// Kinds of pages, and the beginning of their numbers.
const KINDS: [(&str, &str); 5] = [
    ("clean pages of a file that was read", "clean"),
    ("changed pages of a file that was not synced", "changed"),
    ("pages of a file that lives in memory", "shared"),
    ("page cache of the machine", "cached"),
    ("of that, shared memory", "shmem"),
];

/// All three; each is left out where its experiment is.
pub(super) fn sections(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    dropped(m, input, groups);
    device(m, input, groups);
    shell(m, input, groups);
}

/// A number of an arm as a size; a word where there is none.
fn size(value: Option<f64>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |bytes| format_size(bytes as u64))
}

/// A change, with its sign.
fn change(value: Option<f64>) -> String {
    let sign = if value.is_some_and(|bytes| bytes < 0.0) { "-" } else { "" };
    format!("{sign}{}", size(value.map(f64::abs)))
}

/// The page cache and shared memory of the published machine, bytes.
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
    m.tag("h3").text("When all caches are dropped");
    let columns = [
        ("what is in memory", false),
        ("before", true),
        ("after 3 to drop_caches", true),
        ("after a sync and 3 again", true),
    ];
    parts::table(m, "plain", &columns, |m| {
        let ends = published(input, "before drop").zip(published(input, "after drop"));
        if let Some((before, after)) = ends {
            let told = |bytes: f64| size(Some(bytes));
            row(m, ["published: page cache", &told(before.0), &told(after.0), "–"]);
            row(m, ["published: of that, shared memory", &told(before.1), &told(after.1), "–"]);
        }
        for (what, kind) in KINDS {
            let at = |when: &str| {
                of(&format!("{kind}_{when}_bytes"))
                    .map_or_else(|| "not run".to_owned(), |bytes| size(Some(bytes)))
            };
            row(m, [what, &at("before"), &at("dropped"), &at("synced")]);
        }
    });
    m.tag("p").a("class", "lead").text(
        "Only a page that can be had again may go: a clean one is on the device too. Of a changed page \
         there is no other copy until it is written, so it stays, and goes after a sync. A file that \
         lives in memory has no device to come back from; it counts as page cache and never goes. The \
         caches of the whole system are dropped with --drop-caches alone.",
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
            "Not run: the device that holds the file may not be opened here. Published without a \
             number: the buffer cache of a device is apart from the page cache.",
        );
        return;
    };
    let columns = [
        ("in memory after", false),
        ("reading through the file", true),
        ("reading through the device", true),
        ("advice to drop the device's", true),
    ];
    parts::table(m, "plain", &columns, |m| {
        for (what, whose) in [("pages of the file", "file"), ("pages of the device", "device")] {
            let at = |when: &str| size(of(&format!("{whose}_pages_{when}_bytes")));
            row(m, [what, &at("by_file"), &at("by_device"), &at("after_advice")]);
        }
        for (what, level) in
            [("the page cache of the machine grew by", "cache"), ("its Buffers grew by", "buffers")]
        {
            let by = |whom: &str| change(of(&format!("{level}_growth_by_{whom}_bytes")));
            row(m, [what, &by("file"), &by("device"), "–"]);
        }
    });
    let fresh = |metric: &str| {
        let share = of(metric).zip(of("fresh_bytes")).map(|(part, all)| percent(part / all));
        share.unwrap_or_else(|| "unknown".to_owned())
    };
    m.tag("p").a("class", "lead").text(&format!(
        "Published without a number: the buffer cache of a device is apart from the page cache. Here it is \
         one cache, an address space each: pages are found by their file and their place in it, and a \
         device is a file of its own. So the same {} are in memory twice ({} of them were the same), both \
         count as page cache, the device's under the name of Buffers, and the advice for files puts them \
         out. Neither knows of the other: of a file that was written anew the device showed {} of the old \
         bytes before a sync, {} of them still after it, because its own pages stayed, and {} of the new \
         ones once those were gone.",
        format_size(range as u64),
        size(of("equal_bytes")),
        fresh("fresh_old_before_sync_bytes"),
        fresh("fresh_old_after_sync_bytes"),
        fresh("fresh_new_after_advice_bytes"),
    ));
}

fn shell(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let of = |metric: &str| number(input, groups, SHELL.0, SHELL.1, metric);
    let Some(count) = of("shells") else { return };
    let there = |shell: &&&str| of(&format!("{shell}_there")) == Some(1.0);
    let (here, missing): (Vec<&&str>, Vec<&&str>) = SHELLS.iter().partition(|shell| there(shell));
    let each = here.iter().map(|shell| {
        let began = of(&format!("{shell}_began")) == Some(1.0);
        let did = if began { "began" } else { "never began" };
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
        Some(_) => "did not work",
        None => "was not tried without privilege",
    };
    m.tag("h3").text("Who opens the file of a redirection");
    m.tag("p").text(&format!(
        "Published: sudo echo 3 > /proc/sys/vm/drop_caches fails, because of zsh. \
         Here a command with its output sent to a file that the user may not write, in {count} shells: \
         {each}. Not here: {missing}. The shell that reads the line opens the file, as its own user and \
         before it starts the command; sudo would be that command, and never begins. A shell inside of \
         the privileged process {}, a privileged tee {}: what opens the file must have the right.",
        worked("privileged_shell_began"),
        worked("privileged_tee_wrote"),
    ));
}
