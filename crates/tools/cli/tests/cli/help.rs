//! Help teaches: the text of every command is kept, so that a change of it is seen.

use crate::home::Home;

const COMMANDS: [&str; 36] = [
    "",
    "study",
    "each",
    "du",
    "cp",
    "cache",
    "cache status",
    "cache drop",
    "cache warm",
    "serve",
    "load",
    "claims",
    "report",
    "compare",
    "results",
    "results list",
    "results show",
    "results keep",
    "results index",
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

#[test]
fn every_command_explains_itself_with_an_example() {
    let home = Home::new();
    for command in COMMANDS {
        let args: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let text = home.run(&args).well().out;
        assert!(text.contains("Example"), "{command}: {text}");
        assert!(text.contains("ioloom"), "{command}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let name = format!("help {command}").trim().replace(' ', "-");
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn the_list_of_commands_is_complete() {
    let home = Home::new();
    let text = home.run(&["--help"]).well().out;
    let listed: Vec<&str> = text
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .filter(|word| *word != "help" && text.contains(&format!("\n  {word} ")))
        .collect();
    for command in listed {
        assert!(COMMANDS.contains(&command), "{command} has no golden of its help");
    }
}

#[test]
fn shells_complete_and_the_manual_is_a_page() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = home.run(&["completions", shell]).well().out;
        assert!(text.contains("drop-caches"), "{shell}");
    }
    let page = home.run(&["man"]).well().out;
    for word in [".TH ioloom 1", ".SH IOLOOM STUDY", "drop\\-caches", "Examples"] {
        assert!(page.contains(word), "{word}");
    }
    assert!(!page.contains("run\\-order"), "hidden words stay hidden");
    let version = home.run(&["--version"]).well().out;
    assert!(version.starts_with("ioloom 0."), "{version}");
}
