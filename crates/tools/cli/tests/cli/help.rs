//! Help of every command: snapshots of the long form, and checks of the short form, the manual pages
//! and the completions.

use crate::home::{Home, Ran};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const COMMANDS: &[&str] = &[
    "",
    "study",
    "each",
    "du",
    "cp",
    "shard",
    "shard plan",
    "shard merge",
    "shard status",
    "shard submit",
    "shard watch",
    "cache",
    "cache status",
    "cache drop",
    "cache warm",
    "advise",
    "claims",
    "report",
    "compare",
    "results",
    "results list",
    "results show",
    "results keep",
    "results index",
    "predict",
    "predict walk",
    "predict files",
    "predict copy",
    "predict exchange",
    "machine",
    "memory",
    "watch",
    "trace",
    "trace show",
    "trace export",
    "trace compare",
    "trace grant",
    "trace revoke",
    "trace selftest",
    "fileset",
    "fileset create",
    "fileset verify",
    "fileset remove",
    "clean",
    "completions",
    "man",
];

/// The commands of the cargo feature `exchange`.
#[cfg(feature = "exchange")]
const EXCHANGE: &[&str] =
    &["serve", "load", "store", "store verify", "store inspect", "store backup", "store export"];
#[cfg(not(feature = "exchange"))]
const EXCHANGE: &[&str] = &[];

/// Commands whose short help has one line per flag.
const SHORT: [&str; 36] = [
    "predict",
    "predict walk",
    "predict files",
    "predict copy",
    "predict exchange",
    "each",
    "cp",
    "cache",
    "cache status",
    "cache drop",
    "cache warm",
    "fileset",
    "fileset create",
    "fileset verify",
    "fileset remove",
    "memory",
    "machine",
    "clean",
    "completions",
    "man",
    "study",
    "claims",
    "compare",
    "report",
    "results",
    "results list",
    "results show",
    "results keep",
    "results index",
    "trace",
    "trace show",
    "trace export",
    "trace compare",
    "trace selftest",
    "watch",
    "",
];

fn all() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().chain(EXCHANGE).copied()
}

#[test]
fn long_help_has_examples_and_fits_the_terminal() {
    let home = Home::new();
    for command in all() {
        let args: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let text = home.run(&args).well().out;
        assert!(text.contains("Examples:"), "{command}: {text}");
        assert!(text.contains("ioloom"), "{command}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let name = format!("help {command}").trim().replace(' ', "-");
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn help_with_a_help_flag_prints_the_help_of_the_command() {
    let home = Home::new();
    for command in [&["help"][..], &["help", "each"], &["help", "trace", "show"]] {
        let text = home.run(command).well().out;
        for flag in ["--help", "-h"] {
            let args = [command, &[flag]].concat();
            assert_eq!(home.run(&args).well().out, text, "{args:?}");
        }
    }
}

#[test]
fn short_help_has_one_line_per_flag() {
    let home = Home::new();
    for command in SHORT.into_iter().chain(EXCHANGE.iter().copied()) {
        let args: Vec<&str> = command.split_whitespace().chain(["-h"]).collect();
        let text = home.run(&args).well().out;
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let flags = text.split("Options:\n").nth(1).unwrap();
        for line in flags.lines() {
            let starts_flag = line.starts_with("  -") || line.starts_with("      --");
            assert!(starts_flag, "{command}: longer than one line: {line:?}");
        }
        assert!(text.contains("see more with '--help'"), "{command}: no long form");
        let name = format!("short {command}").trim().replace(' ', "-");
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn examples_are_not_wrapped_at_eighty_columns() {
    let home = Home::new();
    for command in SHORT.into_iter().chain(EXCHANGE.iter().copied()).chain(["du"]) {
        let args: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let output = home.command(&args).env("COLUMNS", "100").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let examples = text.split("Examples:\n").nth(1).unwrap();
        for line in examples.lines() {
            assert!(line.chars().count() <= 80, "{command}: {line}");
        }
    }
}

#[test]
fn the_list_of_commands_is_complete() {
    let home = Home::new();
    let text = home.run(&["-h"]).well().out;
    let listed: Vec<&str> = text
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .filter(|word| *word != "help" && text.contains(&format!("\n  {word} ")))
        .collect();
    assert!(listed.len() > 10, "{text}");
    for command in listed {
        assert!(all().any(|known| known == command), "{command} has no help snapshot");
    }
}

#[test]
fn the_help_names_the_glossary() {
    let text = Home::new().run(&["--help"]).well().out;
    assert!(text.contains("docs/reference/glossary.md"), "{text}");
}

#[test]
fn shells_complete_flags_and_their_words() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = home.run(&["completions", shell]).well().out;
        for word in ["drop-caches", "skip-hidden", "version"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
        for hidden in ["run-order", "mapped-here", "progress-lines"] {
            assert!(!text.contains(hidden), "{shell}: {hidden}");
        }
    }
    let bash = home.run(&["completions", "bash"]).well().out;
    let each =
        bash.split("ioloom__subcmd__each)").nth(1).or_else(|| bash.split("ioloom__each)").nth(1));
    let method = each.unwrap().split("--method)").nth(1).unwrap().lines().nth(1).unwrap();
    for word in ["read", "nowait", "uring:registered", "direct:uring", "mmap:populate", "null"] {
        assert!(method.split(['"', ' ']).any(|listed| listed == word), "{word}: {method}");
    }
    let zsh = home.run(&["completions", "zsh"]).well().out;
    assert!(zsh.contains("'(--json)--all[Print every file]'"), "conflicts remain");
    let fish = home.run(&["completions", "fish"]).well().out;
    let durable = fish.split("-l durable").nth(1).unwrap().split("\ncomplete").next().unwrap();
    for word in ["none", "file", "full"] {
        assert!(durable.contains(word), "{word}: {durable}");
    }
}

#[test]
fn a_wrong_value_is_one_error_before_anything_is_opened() {
    let home = Home::new();
    for (args, flag) in [
        (&["each", "absent", "--method", "telepathy"][..], "--method"),
        (&["each", "absent", "--schedule", "window:l=0"], "--schedule"),
        (&["cp", "--durable", "very", "absent", "x"], "--durable"),
        (&["cache", "status", "--threads", "257", "absent"], "--threads"),
        (&["memory", "--max", "1KiB"], "--max"),
        (&["memory", "--only", "disk"], "--only"),
        (&["fileset", "create", "count=many", "absent/set"], "SPEC"),
    ] {
        let ran = home.run(args);
        // As GNU cp does.
        let code = if args[0] == "cp" { 1 } else { 2 };
        ran.one_error(code, &["invalid value '", &format!("' for {flag}: ")]);
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        assert!(!ran.err.contains("absent"), "a file was opened before the error: {}", ran.err);
    }
    // Options of GNU cp have its messages, which list the arguments line by line.
    let ran = home.run(&["cp", "--preserve=some", "absent", "x"]);
    assert!(
        ran.err.starts_with("ioloom: invalid argument 'some' for '--preserve'\n"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("\n  - 'timestamps'\n") && !ran.err.contains("absent"), "{}", ran.err);
}

/// Returns the section headings of a page without quotes.
fn heads(page: &str) -> Vec<String> {
    page.lines()
        .filter_map(|line| line.strip_prefix(".SH "))
        .map(|head| head.replace('"', ""))
        .collect()
}

#[test]
fn every_command_has_a_manual_page() {
    let home = Home::new();
    let dir = home.path("man1");
    home.run(&["man", "--out", dir.to_str().unwrap()]).well();
    let written: BTreeSet<String> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let expected: BTreeSet<String> = all()
        .map(|command| format!("{}.1", format!("ioloom {command}").trim().replace(' ', "-")))
        .collect();
    assert_eq!(written, expected);
    let renders = Command::new("man").arg("--version").output().is_ok();
    if !renders {
        println!("skipped: man is missing, so pages are not rendered");
    }
    for name in &written {
        let page = std::fs::read_to_string(dir.join(name)).unwrap();
        let title = name.strip_suffix(".1").unwrap();
        assert!(page.contains(&format!(".TH {title} 1")), "{name}: {page}");
        let heads = heads(&page);
        for head in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS"] {
            assert_eq!(heads.iter().filter(|h| *h == head).count(), 1, "{name}: {head}: {heads:?}");
        }
        let synopsis = page.split(".SH SYNOPSIS").nth(1).unwrap();
        let words = title.replace('-', " ").replace(' ', "\\ ");
        let plain = synopsis.lines().nth(1).unwrap().replace("\\fB", "").replace("\\fR", "");
        let plain = plain.replace("\\ ", " ").replace("\\-", "-");
        assert!(plain.starts_with(&words.replace("\\ ", " ")), "{name}: {plain}");
        // As in the help: one word for all options, and dots after operands that can be repeated.
        let operands = [("ioloom-each", "[OPTIONS] [PATHS]..."), ("ioloom-watch", "<CMD>...")];
        for (_, operand) in operands.iter().filter(|(of, _)| *of == title) {
            assert!(plain.ends_with(operand), "{name}: {plain}");
        }
        assert!(!page.contains("run\\-order"), "{name}: hidden commands are listed");
        if renders {
            let path = dir.join(name);
            let output = Command::new("man").args(["-l", path.to_str().unwrap()]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && text.contains("SYNOPSIS"), "{name}: {output:?}");
        }
    }
    let page = home.run(&["man"]).well().out;
    let file = std::fs::read_to_string(dir.join("ioloom.1")).unwrap();
    assert_eq!(page, file);
}

#[test]
fn the_examples_of_completions_and_pages_work_in_an_empty_home() {
    let directory = Path::new(env!("CARGO_BIN_EXE_ioloom")).parent().unwrap().display();
    let path = format!("{directory}:{}", std::env::var("PATH").unwrap_or_default());
    let man = Command::new("man").arg("--version").output();
    let has_man = man.is_ok_and(|output| output.status.success());
    for command in ["completions", "man"] {
        if command == "man" && !has_man {
            println!("skipped: man is missing");
            continue;
        }
        let home = Home::new();
        let text = home.run(&[command, "--help"]).well().out;
        let examples = text.split("Examples:\n").nth(1).unwrap();
        let mut shell = home.with_home(Command::new("sh"), &["-e", "-c", examples]);
        shell.env("PATH", &path).env("LC_ALL", "C");
        Ran::from(shell.output().unwrap()).well();
    }
}

#[test]
fn the_version_names_the_program() {
    let version = Home::new().run(&["--version"]).well().out;
    assert!(version.starts_with("ioloom 0."), "{version}");
}
