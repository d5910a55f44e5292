//! The comparisons of `verify`: their goals, and that nothing held out was fitted.

use ioloom_predict::verify::{Section, Use, published};

fn section(title: &str) -> Section {
    let found = published().unwrap().into_iter().find(|section| section.title.contains(title));
    found.unwrap_or_else(|| panic!("no section '{title}'"))
}

#[test]
fn every_goal_is_reached() {
    let mut goals = 0;
    for section in published().unwrap() {
        for group in &section.groups {
            goals += usize::from(group.goal.is_some());
            assert_ne!(group.reached(), Some(false), "{}: {}", group.name, group.mean());
        }
        for figure in &section.figures {
            goals += usize::from(figure.goal.is_some());
            assert_ne!(figure.reached(), Some(false), "{}: {}", figure.name, figure.value);
        }
    }
    assert_eq!(goals, 9);
}

#[test]
fn the_numbers_of_cells_and_parameters_are_those_of_the_goals() {
    for (title, cells, parameters) in
        [("Source 001", 36, 10), ("files, threads and roles", 71, 16), ("Source 004", 42, 0)]
    {
        let section = section(title);
        assert_eq!(section.groups[0].rows.len(), cells, "{title}");
        assert!(section.parameters.len() <= parameters, "{title}");
    }
}

#[test]
fn a_law_lists_all_parameters_that_were_fitted_for_it() {
    let reader = section("break-even");
    // Compute and wait of the few files, and five of the million files, of which it uses the contention.
    assert_eq!(reader.parameters.len(), 7, "{:?}", reader.parameters);
    let million = section("files, threads and roles");
    let names = |section: &Section| -> Vec<String> {
        section.parameters.iter().map(|p| p.name.clone()).collect()
    };
    let (own, all) = (names(&reader), names(&million));
    assert_eq!(own[2..6], all[8..12], "{own:?}");
}

#[test]
fn held_out_cells_are_not_those_of_the_fit() {
    let walk = section("Source 001");
    let held_out = walk.groups.iter().find(|group| group.usage == Use::HeldOut).unwrap();
    assert_eq!(held_out.rows.len(), 24);
    for row in &held_out.rows {
        let probe = [" 1 threads", " 4 threads", " 64 threads"];
        assert!(!probe.iter().any(|probe| row.cell.label.ends_with(probe)), "{}", row.cell.label);
    }
    let files = section("files, threads and roles");
    let halves: Vec<_> = files.groups.iter().filter(|g| g.usage == Use::HeldOut).collect();
    assert_eq!(halves.iter().map(|half| half.rows.len()).sum::<usize>(), 71);
    let key = |row: &ioloom_predict::verify::Row| (row.cell.table, row.cell.label.clone());
    let first: Vec<_> = halves[0].rows.iter().map(key).collect();
    for row in &halves[1].rows {
        let same = first.iter().filter(|other| **other == key(row)).count();
        // Two cells of the roles table, calls and elapsed time, have the same label.
        assert!(same == 0 || row.cell.table == "000_roles", "{:?}", row.cell);
    }
    let reader = section("break-even");
    let fitted: Vec<_> =
        reader.groups.iter().flat_map(|g| &g.rows).filter(|r| r.cell.label.contains('4')).collect();
    assert!(fitted.is_empty(), "{fitted:?}");
}

#[test]
fn the_same_tables_give_the_same_figures() {
    assert_eq!(published().unwrap(), published().unwrap());
}
