//! `du -i`: browses a scan on the terminal; sorts, marks and removes entries.
//!
//! [`Browser`] handles keys and draws into a buffer without a terminal, so tests can press keys and
//! read the screen. Entries are removed only after the user confirms their names by typing `remove`;
//! see [`ioloom_du::remove`].

mod keyboard;
mod question;

use super::args::DuArgs;
use super::picture::{bar, percent, size};
use crate::exit::{Exit, Failure};
use crate::interrupt::StopSignals;
use crate::out::{columns_of, fitted, readable};
use ioloom_du::remove::{Entry, RemoveError, remove};
use ioloom_du::tree::{Excluded, Kind};
use ioloom_du::{Measure, Scan, Tree};
use ioloom_failure::reason;
use ioloom_model::units::{format_counted, format_size};
use ioloom_walk::Follow;
use keyboard::{FEW_KEYS, KEYS, Keyboard, help_lines, is_interrupt, stop_test};
use question::{Question, WORD, things};
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::{DefaultTerminal, Frame};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// Columns of a terminal from which entries have bars. On a narrower one, they would leave no room for names.
const BARS_FROM: usize = 60;

/// The sort order of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Size,
    Name,
    Count,
}

/// A scan on the screen.
struct Browser {
    tree: Tree,
    measure: Measure,
    order: Order,
    /// The displayed directory and the selected line.
    at: usize,
    line: usize,
    marked: BTreeSet<usize>,
    gone: BTreeSet<usize>,
    /// Entries of which a part may have been removed.
    partial: BTreeSet<usize>,
    /// Returns true when a removal must stop.
    stops: Box<dyn FnMut() -> bool>,
    question: Option<Question>,
    /// The name being typed after `/`.
    finding: Option<String>,
    /// The name found last, for the next search.
    found: String,
    help: bool,
    /// The first line of the help on the screen.
    help_from: Cell<usize>,
    /// Whether Esc was pressed: the scan would be lost.
    quitting: bool,
    message: String,
    /// Why removal is disabled; `None` if it is enabled.
    read_only: Option<&'static str>,
    complete: bool,
    /// When it was created, after the scan.
    opened: SystemTime,
    colour: bool,
    /// Whether the screen must be drawn from scratch.
    redraw: bool,
    done: bool,
}

/// Displays the scan until the user quits. Returns the exit code of a signal that ended it.
pub(super) fn run(args: &DuArgs, mut scan: Scan) -> Result<Option<Exit>, Failure> {
    let complete = !scan.interrupted && scan.errors_count == 0;
    if scan.roots.len() > 1 {
        return Err(Failure::usage("--interactive takes one directory"));
    }
    let tree = scan
        .roots
        .pop()
        .ok_or_else(|| Failure::failed("nothing to browse: no entry could be read"))?;
    let mut browser =
        Browser::new(tree, args.measure(), read_only(args, scan.interrupted), complete);
    browser.colour = crate::out::colour();
    let failed =
        |e| Failure::failed(format!("cannot draw on the terminal: {}; try --lines", reason(&e)));
    let signals = StopSignals::catch_every();
    if signals.flag.load(Ordering::Relaxed) {
        // It arrived after the caller looked.
        return Ok(Some(signals.exit()));
    }
    let keyboard = Rc::new(Keyboard::open().map_err(failed)?);
    browser.stops = stop_test(signals.flag.clone(), keyboard.clone());
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let shown = show(&mut browser, &mut terminal, &keyboard, &signals.flag);
    // `restore` prints errors, and panics if standard error is the closed terminal.
    let _ = ratatui::try_restore();
    let done = browser.done;
    // The thread of the keyboard takes keys from the shell until the process ends, and a large tree is freed slowly.
    std::mem::forget(browser);
    let closed = keyboard.is_closed();
    if closed {
        // Its drop prints errors, too.
        std::mem::forget(terminal);
    }
    let signalled = signals.flag.load(Ordering::Relaxed).then(|| signals.exit());
    let exit = signalled.or(closed.then_some(Exit::Hangup));
    match shown {
        Ok(()) if done => Ok(None),
        Ok(()) => Ok(exit),
        // A closed terminal cannot be drawn on.
        Err(_) if exit.is_some() => Ok(exit),
        Err(e) => Err(failed(e)),
    }
}

/// Draws and handles keys until the user quits, the flag is raised or the terminal is closed.
fn show(
    browser: &mut Browser,
    terminal: &mut DefaultTerminal,
    keyboard: &Keyboard,
    stop: &AtomicBool,
) -> io::Result<()> {
    while !browser.done {
        if std::mem::take(&mut browser.redraw) {
            // `clear` would query the position of the cursor, and wait for the answer.
            let area = terminal.get_frame().area();
            terminal.resize(area)?;
        }
        terminal.draw(|frame| browser.draw(frame))?;
        match keyboard.wait_for_event(stop)? {
            Some(Event::Key(key)) if key.kind != KeyEventKind::Release => browser.key(key),
            Some(_) => {}
            None => break,
        }
    }
    Ok(())
}

/// Returns why removal is disabled: it could remove entries that the scan does not show.
fn read_only(args: &DuArgs, interrupted: bool) -> Option<&'static str> {
    if interrupted {
        Some("the scan was interrupted; scan again")
    } else if args.import.is_some() {
        Some("this is an imported scan")
    } else if args.choices.follow.0 == Follow::Always {
        Some("with -L, paths can contain symbolic links; scan without -L")
    } else if !args.exclude.is_empty() || !args.exclude_from.is_empty() {
        Some("excluded entries would be removed; scan without --exclude")
    } else {
        None
    }
}

/// Returns the flag of an entry that an import excludes, as in ncdu.
const fn excluded_flag(why: Excluded) -> char {
    match why {
        Excluded::Pattern => '<',
        Excluded::OtherFileSystem => '>',
        Excluded::KernelFileSystem | Excluded::Firmlink => '^',
    }
}

impl Browser {
    fn new(tree: Tree, measure: Measure, read_only: Option<&'static str>, complete: bool) -> Self {
        Self {
            tree,
            measure,
            order: Order::Size,
            at: 0,
            line: 0,
            marked: BTreeSet::new(),
            gone: BTreeSet::new(),
            partial: BTreeSet::new(),
            stops: Box::new(|| false),
            question: None,
            finding: None,
            found: String::new(),
            help: false,
            help_from: Cell::new(0),
            quitting: false,
            message: String::new(),
            read_only,
            complete,
            opened: SystemTime::now(),
            colour: false,
            redraw: false,
            done: false,
        }
    }

    /// Returns the sorted entries of the displayed directory.
    fn entries(&self) -> Vec<usize> {
        let here = |at: &usize| !self.gone.contains(at);
        let mut entries: Vec<usize> = self.tree.children(self.at).filter(here).collect();
        let total = |at: &usize| self.tree.nodes()[*at].total;
        match self.order {
            Order::Name => {}
            Order::Size => entries.sort_by_key(|at| std::cmp::Reverse(total(at).by(self.measure))),
            Order::Count => entries.sort_by_key(|at| std::cmp::Reverse(total(at).inodes)),
        }
        entries
    }

    fn key(&mut self, key: KeyEvent) {
        if is_interrupt(&key) {
            self.done = true;
            return;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let code = match key.code {
            // The backspace key of some terminals.
            KeyCode::Char('h') if control => KeyCode::Backspace,
            KeyCode::Char(c) if control || key.modifiers.contains(KeyModifiers::ALT) => {
                self.redraw |= control && c == 'l';
                KeyCode::Null
            }
            code => code,
        };
        if self.help {
            return self.help_key(code);
        }
        if self.quitting {
            self.quitting = false;
            self.message.clear();
            self.done = matches!(code, KeyCode::Char('y' | 'Y'));
            return;
        }
        if code == KeyCode::Null {
            return;
        }
        if self.finding.is_some() {
            return self.type_name(code);
        }
        if self.question.is_some() {
            return self.answer(code);
        }
        self.message.clear();
        self.command(code);
    }

    /// Scrolls or closes the help.
    fn help_key(&mut self, key: KeyCode) {
        let from = self.help_from.get_mut();
        match key {
            KeyCode::Down | KeyCode::Char('j') => *from += 1,
            KeyCode::Up | KeyCode::Char('k') => *from = from.saturating_sub(1),
            KeyCode::PageDown => *from += 10,
            KeyCode::PageUp => *from = from.saturating_sub(10),
            _ => {
                *from = 0;
                self.help = false;
            }
        }
    }

    /// Handles a key that is not part of a question or a name.
    fn command(&mut self, key: KeyCode) {
        let entries = self.entries();
        let last = entries.len().saturating_sub(1);
        match key {
            KeyCode::Char('q') => self.done = true,
            KeyCode::Esc => {
                self.quitting = true;
                "Press y to quit and discard this scan, any other key to stay."
                    .clone_into(&mut self.message);
            }
            KeyCode::Char('?') => self.help = true,
            KeyCode::Char('/') => self.finding = Some(String::new()),
            KeyCode::Down | KeyCode::Char('j') => self.line = (self.line + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.line = self.line.saturating_sub(1),
            KeyCode::PageDown => self.line = (self.line + 10).min(last),
            KeyCode::PageUp => self.line = self.line.saturating_sub(10),
            KeyCode::Home | KeyCode::Char('g') => self.line = 0,
            KeyCode::End | KeyCode::Char('G') => self.line = last,
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => self.enter(&entries),
            KeyCode::Left | KeyCode::Backspace | KeyCode::Char('h') => self.leave(),
            KeyCode::Char('s') => self.sort(Order::Size),
            KeyCode::Char('n') => self.sort(Order::Name),
            KeyCode::Char('c') => self.sort(Order::Count),
            KeyCode::Char('a') => {
                self.measure = match self.measure {
                    Measure::Disk => Measure::Apparent,
                    Measure::Apparent => Measure::Inodes,
                    Measure::Inodes => Measure::Disk,
                };
            }
            KeyCode::Char(' ') => {
                if let Some(at) = entries.get(self.line) {
                    if !self.marked.remove(at) {
                        self.marked.insert(*at);
                    }
                    self.line = (self.line + 1).min(last);
                }
            }
            KeyCode::Char('d') => self.ask(&entries),
            _ => {}
        }
    }

    /// Types the name to find.
    fn type_name(&mut self, key: KeyCode) {
        let Some(typed) = &mut self.finding else { return };
        match key {
            KeyCode::Char(c) if typed.chars().count() < 60 => typed.push(c),
            KeyCode::Backspace => {
                typed.pop();
            }
            KeyCode::Esc => self.finding = None,
            KeyCode::Enter => {
                if let Some(typed) = self.finding.take().filter(|typed| !typed.is_empty()) {
                    self.found = typed.to_lowercase();
                }
                self.find();
            }
            _ => {}
        }
    }

    /// Selects the next entry, in the order of a walk by name, whose name contains the text. Begins
    /// again at the start of the scan.
    fn find(&mut self) {
        if self.found.is_empty() {
            return;
        }
        let selected = self.entries().get(self.line).copied().unwrap_or(self.at);
        let end = self.tree.nodes().len();
        let matches = |at: &usize| {
            readable(self.tree.name(*at)).to_lowercase().contains(&self.found) && !self.is_gone(*at)
        };
        let next = (selected + 1..end).chain(1..=selected.min(end - 1)).find(matches);
        let Some(at) = next else {
            self.message = format!("no name contains '{}'", self.found);
            return;
        };
        self.at = self.tree.nodes()[at].parent as usize;
        self.line = self.entries().iter().position(|entry| *entry == at).unwrap_or(0);
        self.message = format!("found '{}'; / and enter find the next one", self.found);
    }

    /// Returns whether an entry was removed, itself or with a directory above it.
    fn is_gone(&self, at: usize) -> bool {
        self.gone.iter().any(|gone| (*gone..self.tree.nodes()[*gone].end as usize).contains(&at))
    }

    fn sort(&mut self, order: Order) {
        self.order = order;
        self.line = 0;
    }

    fn enter(&mut self, entries: &[usize]) {
        let Some(at) = entries.get(self.line) else { return };
        let node = &self.tree.nodes()[*at];
        if node.kind == Kind::Directory {
            (self.at, self.line) = (*at, 0);
            if node.unreadable {
                "this directory could not be read completely".clone_into(&mut self.message);
            }
        }
    }

    fn leave(&mut self) {
        if self.at != 0 {
            let from = self.at;
            self.at = self.tree.nodes()[from].parent as usize;
            self.line = self.entries().iter().position(|at| *at == from).unwrap_or(0);
        }
    }

    /// Prompts for confirmation to remove the marked entries or, if none are marked, the selected one.
    fn ask(&mut self, entries: &[usize]) {
        if let Some(why) = self.read_only {
            self.message = format!("removal is disabled: {why}");
            return;
        }
        let chosen = || entries.get(self.line).copied().into_iter().collect();
        let nodes: Vec<usize> =
            if self.marked.is_empty() { chosen() } else { self.marked.iter().copied().collect() };
        // Skip entries inside another entry to be removed.
        let mut outer: Vec<usize> = Vec::new();
        for at in nodes {
            let within = |above: &usize| at < self.tree.nodes()[*above].end as usize;
            if !outer.last().is_some_and(within) {
                outer.push(at);
            }
        }
        if !outer.is_empty() {
            let kept_bytes = self.tree.kept_bytes(&outer);
            self.question = Some(Question { nodes: outer, kept_bytes, typed: String::new() });
        }
    }

    fn answer(&mut self, key: KeyCode) {
        let Some(question) = &mut self.question else { return };
        match key {
            KeyCode::Char(c) if question.typed.chars().count() < 20 => question.typed.push(c),
            KeyCode::Backspace => {
                question.typed.pop();
            }
            KeyCode::Enter => {
                let question = self.question.take();
                match question.filter(|q| q.typed == WORD) {
                    Some(question) => self.remove(&question.nodes),
                    None => "nothing was removed".clone_into(&mut self.message),
                }
            }
            KeyCode::Esc => {
                self.question = None;
                "nothing was removed".clone_into(&mut self.message);
            }
            _ => {}
        }
    }

    fn remove(&mut self, nodes: &[usize]) {
        let mut removed = 0;
        for at in nodes {
            match self.remove_one(*at) {
                Ok(()) => {
                    self.tree.forget(*at);
                    self.gone.insert(*at);
                    self.marked.retain(|m| *m < *at || *m >= self.tree.nodes()[*at].end as usize);
                    removed += 1;
                }
                Err(error) => {
                    self.message = readable(error.to_string().as_bytes());
                    if error.may_be_partial() && self.tree.nodes()[*at].kind == Kind::Directory {
                        self.complete = false;
                        self.partial.insert(*at);
                    }
                    break;
                }
            }
        }
        if removed == nodes.len() {
            self.message = format!("removed {}", things(removed));
        }
        self.line = self.line.min(self.entries().len().saturating_sub(1));
    }

    /// Removes an entry with everything below it, unless a part is on another device.
    fn remove_one(&mut self, at: usize) -> Result<(), RemoveError> {
        let root = self.tree.name(0).to_vec();
        let below = self.below_root(at);
        let other_device = self.tree.other_device(at).map(|other| self.below_root(other));
        let entry = Entry {
            path: &below,
            id: self.tree.nodes()[at].id,
            is_directory: self.tree.nodes()[at].kind == Kind::Directory,
            scanned: self.opened,
            other_device: other_device.as_deref(),
        };
        remove(Path::new(OsStr::from_bytes(&root)), &entry, &mut *self.stops)
    }

    /// Returns the path of an entry, relative to the root.
    fn below_root(&self, at: usize) -> Vec<u8> {
        let whole = self.tree.path(at);
        let below = &whole[self.tree.name(0).len()..];
        below.strip_prefix(b"/").unwrap_or(below).to_vec()
    }

    // Drawing

    fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let entries = self.entries();
        let put = |frame: &mut Frame<'_>, y: u16, text: &str, style: Style| {
            if y < area.height {
                let line = fitted(text, usize::from(area.width));
                let room = usize::from(area.width).saturating_sub(columns_of(&line));
                let line = line + &" ".repeat(room);
                frame.buffer_mut().set_string(0, y, line, style);
            }
        };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        put(frame, 0, &self.head(), bold);
        let height = usize::from(area.height.saturating_sub(4));
        let first = self.line.saturating_sub(height.saturating_sub(1));
        for (row, at) in entries.iter().skip(first).take(height).enumerate() {
            let chosen = first + row == self.line;
            // The arrow and the star show selection and mark without relying on colour.
            let style =
                if chosen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
            put(frame, row as u16 + 1, &self.entry(*at, chosen, area.width), style);
        }
        if entries.is_empty() {
            put(frame, 1, "  empty", Style::new());
        }
        let foot = area.height.saturating_sub(3);
        put(frame, foot, &self.summary(), bold);
        let typing = self.finding.as_ref().map(|typed| format!("Find: {typed}_"));
        put(frame, foot + 1, typing.as_ref().unwrap_or(&self.message), Style::new());
        let keys = if columns_of(KEYS) <= usize::from(area.width) { KEYS } else { FEW_KEYS };
        put(frame, foot + 2, keys, Style::new());
        if let Some(question) = &self.question {
            self.draw_question(frame, area, question);
        }
        if self.help {
            let lines = help_lines(area.width);
            let height = usize::from(area.height.saturating_sub(1));
            let from = self.help_from.get().min(lines.len().saturating_sub(height));
            // The next key up then scrolls from the last page.
            self.help_from.set(from);
            let rows = lines.len().max(usize::from(foot.saturating_sub(1))).min(height);
            let texts = lines.into_iter().skip(from).chain(std::iter::repeat(String::new()));
            for (row, text) in texts.take(rows).enumerate() {
                put(frame, row as u16 + 1, &format!("  {text}"), Style::new());
            }
        }
    }

    fn head(&self) -> String {
        let path = readable(&self.tree.path(self.at));
        let order = match self.order {
            Order::Size => "size",
            Order::Name => "name",
            Order::Count => "count",
        };
        format!("{path}   [{}, by {order}]", self.measure.word())
    }

    fn entry(&self, at: usize, chosen: bool, width: u16) -> String {
        let node = &self.tree.nodes()[at];
        let whole = self.tree.nodes()[self.at].total.by(self.measure);
        let value = node.total.by(self.measure);
        let part = if whole == 0 { 0.0 } else { value as f64 / whole as f64 };
        let arrow = if chosen { '>' } else { ' ' };
        let mark = if self.marked.contains(&at) { '*' } else { ' ' };
        let excluded = node.excluded.map(excluded_flag);
        let flag = match (excluded, node.unreadable, node.shared_bytes > 0, node.kind) {
            _ if self.partial.contains(&at) => '?',
            (Some(flag), ..) => flag,
            (_, true, ..) => '!',
            (_, _, true, _) => 'H',
            (.., Kind::Symlink) => '@',
            _ => ' ',
        };
        let slash = if node.kind == Kind::Directory { "/" } else { "" };
        let drawn =
            if usize::from(width) < BARS_FROM { String::new() } else { bar(part, 1.0) + " " };
        format!(
            "{arrow}{mark}{flag} {:>10} {:>6} {drawn}{}{slash}",
            size(value, self.measure),
            percent(part),
            readable(self.tree.name(at)),
        )
    }

    fn summary(&self) -> String {
        let here = &self.tree.nodes()[self.at];
        let total = here.total;
        let mut text = format!(
            "{} disk, {} apparent, {}",
            format_size(total.disk_bytes),
            format_size(total.apparent_bytes),
            format_counted(total.inodes, "entry", "entries"),
        );
        if here.shared_bytes > 0 {
            text += &format!(", {} also linked from outside (H)", format_size(here.shared_bytes));
        }
        if !self.marked.is_empty() {
            text += &format!(", {} marked", self.marked.len());
        }
        if !self.complete {
            text += ", INCOMPLETE";
        }
        text
    }

    fn draw_question(&self, frame: &mut Frame<'_>, area: Rect, question: &Question) {
        let lines = question.lines(&self.tree, self.complete, area.height);
        let width = usize::from(area.width);
        let last_top = area.height.saturating_sub(lines.len() as u16);
        let top = (area.height / 2).saturating_sub(2).min(last_top);
        let style = Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED);
        for (i, line) in lines.iter().enumerate() {
            let y = top + i as u16;
            if y < area.height {
                let text = format!("  {}", fitted(line, width.saturating_sub(4)));
                let room = width.saturating_sub(columns_of(&text));
                frame.buffer_mut().set_string(0, y, text + &" ".repeat(room), style);
            }
        }
    }
}

#[cfg(test)]
mod tests;
