//! The index of results: it links to each directory of runs, or to the question that they answer.

use super::finding::Finding;
use super::links;
use crate::repo::Repo;
use std::path::Path;

const RESULTS: &str = "results";
/// Its directories are questions, like those of `results`.
const SUPERSEDED: &str = "results/superseded";

/// Checks the index.
pub(super) fn check(repo: &Repo) -> anyhow::Result<Vec<Finding>> {
    let index = repo.read(&Path::new(RESULTS).join("README.md"))?;
    let mut questions = repo.folders(Path::new(RESULTS))?;
    questions.retain(|question| question != Path::new(SUPERSEDED));
    questions.extend(repo.folders(Path::new(SUPERSEDED))?);
    questions.sort();
    let mut findings = Vec::new();
    for question in questions {
        for runs in repo.folders(&question)? {
            if !is_listed(&index, &runs) {
                let place = runs.display().to_string();
                findings.push(Finding::refuse(place, "has no link in results/README.md"));
            }
        }
    }
    Ok(findings)
}

/// Returns whether the index has a link to a directory of runs, to a file in it, or to its question.
fn is_listed(index: &str, runs: &Path) -> bool {
    let runs = runs.strip_prefix(RESULTS).unwrap_or(runs);
    let leads = |target: &Path| target.starts_with(runs) || Some(target) == runs.parent();
    links::targets(index).iter().any(|(_, target)| leads(Path::new(target)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_need_a_link() {
        let index = "[a](one/2026-01-01-host/README.md) [b](two/) [c](old/three/2026-01-01-host)";
        for (runs, listed) in [
            ("results/one/2026-01-01-host", true),
            ("results/one/2026-01-01-host-again", false),
            ("results/two/2026-01-02-host", true),
            ("results/old/three/2026-01-01-host", true),
            ("results/three/2026-01-01-host", false),
        ] {
            assert_eq!(is_listed(index, Path::new(runs)), listed, "{runs}");
        }
    }

    #[test]
    fn the_page_of_predictions_has_the_scores_of_the_measured_cells() {
        let repo = Repo::find().unwrap();
        let page = repo.read(Path::new("docs/predict.md")).unwrap();
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        let score = |run: &str| {
            let path = format!("results/predict-cells/2026-11-26-intel-xeon-2c/{run}.md");
            let text = repo.read(Path::new(&path)).unwrap();
            let score = text.lines().find_map(|line| line.strip_prefix("predicted: ")).unwrap();
            score.split(' ').next().unwrap().to_owned()
        };
        let before = format!("the program predicted {} within 10 %", score("before"));
        let after = format!("made with these cells in view, it is {},", score("after"));
        assert!(page.contains(&before), "{before}");
        assert!(page.contains(&after), "{after}");
    }
}
