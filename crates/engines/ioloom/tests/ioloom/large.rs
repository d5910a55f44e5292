//! Results that are too large for many copies on the stack of a thread.

use crate::support::{guarded, make, roots};
use std::ops::ControlFlow;

const BYTES: usize = 64_000;
const FILES: usize = 50;
/// The sum of all positions.
const SUM: usize = FILES * (FILES - 1) / 2;

type Large = [u8; BYTES];

fn large(index: usize) -> Large {
    [index as u8; BYTES]
}

fn index_of(value: &Large) -> usize {
    usize::from(value[BYTES - 1])
}

fn assert_all(values: &[Large]) {
    assert_eq!(values.len(), FILES);
    assert!(values.iter().enumerate().all(|(index, value)| index_of(value) == index));
}

#[test]
fn large_values_of_every_form_arrive() {
    let (_dir, paths) = make(&roots()[0], &[1000; FILES]);
    guarded("large values of every form".to_owned(), move || {
        let files = || ioloom::list(&paths).ordered();
        assert_all(&files().map(|f| large(f.index())).run().unwrap().value);
        assert_all(&files().map(|f| large(f.index())).collect().unwrap());
        let run = files().try_map(|f| Ok::<_, ()>(large(f.index()))).run();
        assert_all(&run.unwrap().value);
        let run = files().map_until(|f| ControlFlow::Continue(large(f.index()))).run();
        assert_all(&run.unwrap().value);
        let run = files().map_init(|| (), |(), f| large(f.index())).run();
        assert_all(&run.unwrap().value);
        let run = files()
            .chunks(300)
            .fold_file(|_| large(0), |state, c| *state = large(c.index()), |state, _| state)
            .run();
        assert_all(&run.unwrap().value);
        let chunks = files().chunks(1 << 16).map_chunks(|c| large(c.index())).collect().unwrap();
        let chunks: Vec<usize> = chunks.iter().flatten().map(index_of).collect();
        assert!(chunks.len() >= FILES && chunks.is_sorted());
        let run = files().chunks(1 << 16).map_reader(|_, _| large(7)).unwrap();
        assert!(run.value.len() == FILES && run.value.iter().all(|value| index_of(value) == 7));
    });
}

#[test]
fn large_values_are_folded_and_found() {
    let (_dir, paths) = make(&roots()[0], &[1000; FILES]);
    guarded("large values that are folded and found".to_owned(), move || {
        let job = || ioloom::files(paths.clone()).map(|f| large(f.index()));
        let add = |sum: &mut usize, value: Large| *sum += index_of(&value);
        assert_eq!(job().fold(|| 0, add, |all, sum| *all += sum).unwrap().value, SUM);
        let add = |sum: &mut usize, result: Result<Large, ioloom::FileError>| {
            *sum += index_of(&result.unwrap());
        };
        assert_eq!(job().fold_results(|| 0, add, |all, sum| *all += sum).unwrap().value, SUM);
        assert_eq!(job().take_results(FILES).unwrap().value.len(), FILES);
        assert!(job().find_any(|value| index_of(value) == 40).unwrap().is_some());
        let first = job().find_first(|value| index_of(value) >= 40).unwrap();
        assert_eq!(first.map(|value| index_of(&value)), Some(40));
    });
}

#[test]
fn large_values_are_items_of_iterators_and_scopes() {
    let (_dir, paths) = make(&roots()[0], &[1000; FILES]);
    guarded("large values as items".to_owned(), move || {
        let job = || ioloom::files(paths.clone()).map(|f| large(f.index()));
        let mut sum = 0;
        for value in job() {
            sum += index_of(&value.unwrap());
        }
        assert_eq!(sum, SUM);
        let run = job().scope(|results| {
            let mut sum = 0;
            for value in results {
                sum += index_of(&value.unwrap());
            }
            sum
        });
        assert_eq!(run.unwrap().value, SUM);
    });
}
