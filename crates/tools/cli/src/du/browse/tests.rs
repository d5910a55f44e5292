//! Presses keys and reads the screen.

use super::keyboard::HELP;
use super::*;
use clap::{Args, FromArgMatches};
use ioloom_du::ncdu::{Limits, import};
use ioloom_du::scan::{Detail, ScanOptions, scan};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::fs;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for (name, bytes) in [("t/a-big/x", 40_000), ("t/b-many/1", 1), ("t/c", 9000)] {
            let path = place.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![7; bytes]).unwrap();
        }
        for i in 2..9 {
            fs::write(place.0.path().join(format!("t/b-many/{i}")), "x").unwrap();
        }
        fs::create_dir(place.0.path().join("outside")).unwrap();
        fs::write(place.0.path().join("outside/safe"), "x").unwrap();
        std::os::unix::fs::symlink("../outside", place.0.path().join("t/link")).unwrap();
        place
    }

    fn browser(&self) -> Browser {
        let options = ScanOptions { detail: Detail::ALL, ..ScanOptions::default() };
        let mut scan = scan(&[self.0.path().join("t")], options).unwrap();
        Browser::new(scan.roots.remove(0), Measure::Apparent, None, true)
    }
}

fn screen(browser: &Browser) -> Vec<String> {
    screen_of(browser, 80, 12)
}

fn screen_of(browser: &Browser, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| browser.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| row(y).trim_end().to_owned()).collect()
}

fn press(browser: &mut Browser, keys: &str) {
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '<' => KeyCode::Left,
            '+' => KeyCode::Down,
            '^' => KeyCode::Esc,
            c => KeyCode::Char(c),
        };
        browser.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
}

/// The names on the screen, in order.
fn names(browser: &Browser) -> Vec<String> {
    let known = ["a-big/", "b-many/", "c", "link", "x"];
    let words = |line: String| line.split_whitespace().last().unwrap_or("").to_owned();
    let lines = screen(browser)[1..9].to_vec();
    lines.into_iter().map(words).filter(|w| known.contains(&w.as_str())).collect()
}

#[test]
fn keys_move_enter_and_sort() {
    let place = Place::new();
    let mut browser = place.browser();
    assert_eq!(names(&browser)[0], "a-big/");
    assert!(screen(&browser)[1].starts_with('>'), "{:?}", screen(&browser));
    press(&mut browser, "c");
    assert_eq!(names(&browser)[0], "b-many/");
    press(&mut browser, "n");
    assert_eq!(names(&browser), ["a-big/", "b-many/", "c", "link"]);
    press(&mut browser, "\n");
    assert_eq!(names(&browser), ["x"]);
    assert!(screen(&browser)[0].contains("t/a-big"), "{:?}", screen(&browser));
    press(&mut browser, "<");
    assert_eq!(names(&browser).len(), 4);
    press(&mut browser, "q");
    assert!(browser.done);
}

#[test]
fn all_keys_fit_on_a_line_of_80_columns() {
    assert!(columns_of(KEYS) <= 80, "{}", columns_of(KEYS));
    let place = Place::new();
    let line = screen(&place.browser())[11].clone();
    assert!(line.starts_with("↑↓ move") && line.ends_with("q quit"), "{line}");
}

#[test]
fn a_question_mark_shows_all_keys_until_the_next_key() {
    let place = Place::new();
    let mut browser = place.browser();
    press(&mut browser, "?");
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| browser.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let text: String =
        (0..24).flat_map(|y| (0..80).map(move |x| buffer[(x, y)].symbol())).collect();
    for line in HELP {
        assert!(text.contains(line) && columns_of(line) < 78, "{line}");
    }
    assert!(!text.contains("a-big"), "{text}");
    // The key that closes the help does nothing else.
    press(&mut browser, "q");
    assert!(!browser.done && screen(&browser).join("\n").contains("a-big"));
}

#[test]
fn a_slash_finds_names_in_the_whole_scan() {
    let place = Place::new();
    let mut browser = place.browser();
    let selected = |browser: &Browser| {
        screen(browser)[1..9].iter().find(|line| line.starts_with('>')).unwrap().clone()
    };
    press(&mut browser, "/X\n");
    assert!(selected(&browser).ends_with(" x"), "{:?}", screen(&browser));
    assert!(screen(&browser)[0].contains("t/a-big"));
    press(&mut browser, "/q^");
    assert!(!browser.done && browser.finding.is_none());
    press(&mut browser, "/\n");
    assert!(selected(&browser).ends_with(" x"), "the only match is found again");
    press(&mut browser, "/nothing\n");
    assert!(browser.message.contains("no name"), "{}", browser.message);
    press(&mut browser, "/b-\n");
    assert!(selected(&browser).ends_with("b-many/"), "{:?}", screen(&browser));
}

#[test]
fn escape_asks_before_it_quits() {
    let place = Place::new();
    let mut browser = place.browser();
    for key in ["n", "^", " ", "q"] {
        press(&mut browser, "^");
        assert!(
            !browser.done && screen(&browser)[10].contains("to quit"),
            "{:?}",
            screen(&browser)
        );
        press(&mut browser, key);
        assert!(!browser.done && browser.message.is_empty(), "{key}");
    }
    press(&mut browser, "^y");
    assert!(browser.done);
}

#[test]
fn nothing_is_removed_without_the_word() {
    let place = Place::new();
    let mut browser = place.browser();
    press(&mut browser, "nd");
    let text = screen(&browser).join("\n");
    assert!(text.contains("remove") && text.contains("a-big") && text.contains("Type"), "{text}");
    for typed in ["\n", "d\n", "yes\n", "remov\n", "removed\n", "^"] {
        if browser.question.is_none() {
            press(&mut browser, "d");
        }
        press(&mut browser, typed);
        assert!(place.0.path().join("t/a-big/x").exists(), "{typed:?}");
        assert!(browser.question.is_none());
        assert!(browser.message.contains("nothing"), "{}", browser.message);
    }
}

#[test]
fn the_word_removes_what_is_marked_and_follows_no_link() {
    let place = Place::new();
    let mut browser = place.browser();
    let before = browser.tree.root().total;
    press(&mut browser, "n ++ d");
    // The first space marked a-big, the last one link.
    assert!(screen(&browser).join("\n").contains("2 entries"), "{:?}", screen(&browser));
    press(&mut browser, "remove\n");
    assert!(browser.message.contains("removed 2"), "{}", browser.message);
    let t = place.0.path().join("t");
    assert!(!t.join("a-big").exists() && !t.join("link").exists() && t.join("c").exists());
    assert!(place.0.path().join("outside/safe").exists());
    assert_eq!(names(&browser), ["b-many/", "c"]);
    assert_eq!(browser.tree.root().total.inodes, before.inodes - 3);
}

#[test]
fn a_replaced_file_stays() {
    let place = Place::new();
    let mut browser = place.browser();
    let t = place.0.path().join("t");
    fs::rename(t.join("c"), t.join("kept")).unwrap();
    fs::write(t.join("c"), "another").unwrap();
    press(&mut browser, "n++dremove\n");
    assert!(t.join("c").exists(), "{}", browser.message);
    assert!(browser.message.contains("changed since the scan"), "{}", browser.message);
    assert!(browser.complete, "nothing was removed");
}

#[test]
fn a_stopped_removal_is_shown_as_partial() {
    let place = Place::new();
    let mut browser = place.browser();
    let mut calls = 0;
    browser.stops = Box::new(move || {
        calls += 1;
        calls > 4
    });
    press(&mut browser, "n+dremove\n");
    assert_eq!(fs::read_dir(place.0.path().join("t/b-many")).unwrap().count(), 6);
    assert!(browser.message.contains("stopped removing 'b-many'"), "{}", browser.message);
    let lines = screen(&browser);
    let line = lines.iter().find(|line| line.ends_with("b-many/")).unwrap();
    assert!(line.starts_with("> ?") && lines[9].ends_with("INCOMPLETE"), "{lines:?}");
}

#[test]
fn control_and_alt_do_not_type_letters() {
    let place = Place::new();
    let mut browser = place.browser();
    let with = |browser: &mut Browser, modifiers: KeyModifiers, letters: &str| {
        for letter in letters.chars() {
            browser.key(KeyEvent::new(KeyCode::Char(letter), modifiers));
        }
    };
    for modifiers in [KeyModifiers::CONTROL, KeyModifiers::ALT] {
        with(&mut browser, modifiers, "dq?/");
        assert!(browser.question.is_none() && browser.finding.is_none());
        assert!(!browser.done && !browser.help && !browser.redraw);
    }
    // Any key closes the help and the question whether to quit.
    for modifiers in [KeyModifiers::CONTROL, KeyModifiers::ALT] {
        press(&mut browser, "?");
        with(&mut browser, modifiers, "x");
        press(&mut browser, "^");
        with(&mut browser, modifiers, "y");
        assert!(!browser.help && !browser.quitting && !browser.done);
    }
    press(&mut browser, "/ab");
    with(&mut browser, KeyModifiers::CONTROL, "uhl");
    assert_eq!((browser.finding.as_deref(), browser.redraw), (Some("a"), true));
    with(&mut browser, KeyModifiers::CONTROL, "c");
    assert!(browser.done);
}

#[test]
fn an_import_is_for_looking_only() {
    let place = Place::new();
    let mut browser = place.browser();
    browser.read_only = Some("this is an import");
    press(&mut browser, "d");
    assert!(browser.question.is_none());
    assert!(screen(&browser).join("\n").contains("removal is disabled"), "{:?}", screen(&browser));
}

#[test]
fn excluded_entries_of_an_import_are_marked() {
    let text = br#"[1,2,{},[{"name":"r"},{"name":"a","excluded":"pattern"},
        {"name":"b","excluded":"otherfs"},{"name":"c","excluded":"kernfs"},{"name":"d"}]]"#;
    let tree = import(&mut &text[..], Limits::default()).unwrap().tree;
    let mut browser = Browser::new(tree, Measure::Apparent, Some("this is an import"), true);
    press(&mut browser, "n");
    let flags: Vec<char> =
        screen(&browser)[1..5].iter().filter_map(|line| line.chars().nth(2)).collect();
    assert_eq!(flags, ['<', '>', '^', ' ']);
    assert!(screen(&browser)[9].contains("2 entries"), "{:?}", screen(&browser));
}

#[test]
fn a_scan_that_leaves_entries_out_is_for_looking_only() {
    let reason = |words: &[&str]| {
        let command = DuArgs::augment_args(clap::Command::new("du"));
        let matches = command.try_get_matches_from([&["du"][..], words].concat()).unwrap();
        let args = DuArgs::from_arg_matches(&matches).unwrap();
        [false, true].map(|interrupted| read_only(&args, interrupted))
    };
    let interrupted = Some("the scan was interrupted; scan again");
    assert_eq!(reason(&["t"]), [None, interrupted]);
    for words in [["--exclude", "*.o"], ["-X", "list"], ["--import", "x.json"]] {
        assert!(reason(&words)[0].is_some(), "{words:?}");
    }
}

#[test]
fn a_file_with_a_link_elsewhere_stays() {
    let place = Place::new();
    let t = place.0.path().join("t");
    fs::hard_link(t.join("a-big/x"), t.join("b-many/x")).unwrap();
    fs::File::open(t.join("a-big/x")).unwrap().sync_all().unwrap();
    let mut browser = place.browser();
    let bytes = browser.tree.root().total.apparent_bytes;
    press(&mut browser, "nd");
    let text = screen(&browser).join("\n");
    assert!(text.contains("stay, with links elsewhere"), "{text}");
    let directory = fs::metadata(t.join("a-big")).unwrap().len();
    press(&mut browser, "remove\n");
    assert_eq!(browser.tree.root().total.apparent_bytes, bytes - directory);
    press(&mut browser, "d");
    let text = screen(&browser).join("\n");
    assert!(text.contains("b-many") && !text.contains("stay"), "{text}");
}

#[test]
fn the_question_says_that_a_scan_is_incomplete() {
    let place = Place::new();
    for complete in [true, false] {
        let mut browser = place.browser();
        browser.complete = complete;
        press(&mut browser, "nd");
        let text = screen(&browser).join("\n");
        assert_eq!(text.contains("more than shown may be removed"), !complete, "{text}");
        assert!(text.contains("Type 'remove'"), "{text}");
    }
}

#[test]
fn the_question_names_up_to_five_marked_entries() {
    let place = Place::new();
    for i in 0..3 {
        fs::write(place.0.path().join(format!("t/d{i}")), "x").unwrap();
    }
    let mut browser = place.browser();
    press(&mut browser, "n  d");
    let text = screen(&browser).join("\n");
    assert!(text.contains("t/a-big") && text.contains("t/b-many"), "{text}");
    assert!(!text.contains(" more"), "{text}");
    press(&mut browser, "^     d");
    let text = screen(&browser).join("\n");
    assert!(text.contains("remove 7 entries?") && text.contains("t/d1"), "{text}");
    assert!(text.contains("and 2 more") && text.contains("Type 'remove'"), "{text}");
}

#[test]
fn a_narrow_screen_has_names_keys_answers_and_all_of_the_help() {
    let place = Place::new();
    let mut browser = place.browser();
    let small = |browser: &Browser| screen_of(browser, 40, 10);
    let lines = small(&browser);
    assert!(lines[1].ends_with(" a-big/") && lines[9].ends_with("? help  q quit"), "{lines:?}");
    press(&mut browser, "drem");
    let text = small(&browser).join("\n");
    assert!(text.contains("> rem_     Type 'remove'"), "{text}");
    press(&mut browser, "^^");
    let lines = small(&browser);
    assert!(lines[8].starts_with("Press y to quit and discard this scan"), "{lines:?}");
    press(&mut browser, "n?");
    let mut seen = small(&browser);
    for _ in 0..40 {
        press(&mut browser, "j");
        seen.extend(small(&browser));
    }
    let text = seen.join("\n");
    for words in ["Up and down scroll", "space", "mark an entry", "ctrl-l", "@ symbolic link"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let last = small(&browser);
    press(&mut browser, "k");
    assert_eq!(small(&browser)[2..], last[1..9]);
    press(&mut browser, "q");
    assert!(!browser.done && !browser.help);
}

#[test]
fn small_screens_do_not_panic() {
    let place = Place::new();
    let mut browser = place.browser();
    press(&mut browser, "d");
    for (width, height) in [(1, 1), (5, 3), (20, 4), (200, 60)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| browser.draw(frame)).unwrap();
    }
}
