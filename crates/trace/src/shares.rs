//! Shares of time in every state: per role, for any range, per pixel column.

use crate::lane::Trace;
use crate::raw::PROCESSORS;
use ioloom_model::{Quality, State, StateTable, StateTime};
use std::collections::BTreeMap;

/// The threads of one role, summed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Role {
    /// Role.
    pub role: String,
    /// Number of threads.
    pub threads: usize,
    /// Sum per state.
    pub states: StateTable,
}

/// How many processors there are: the series [`PROCESSORS`], else the core lanes, else `None`.
pub fn processors(trace: &Trace) -> Option<u32> {
    let said = trace.series.iter().find(|s| s.name == PROCESSORS);
    let said = said.and_then(|s| s.points.last()).map(|p| p.1 as u32).filter(|n| *n > 0);
    said.or_else(|| (!trace.cores.is_empty()).then_some(trace.cores.len() as u32))
}

/// The roles in the order of their first thread, each with the sum of its threads' tables.
pub fn roles(trace: &Trace) -> Vec<Role> {
    let mut roles: Vec<Role> = Vec::new();
    for thread in &trace.threads {
        let found = roles.iter().position(|r| r.role == thread.role);
        let at = found.unwrap_or_else(|| {
            roles.push(Role { role: thread.role.clone(), ..Role::default() });
            roles.len() - 1
        });
        roles[at].threads += 1;
        let before = std::mem::take(&mut roles[at].states);
        roles[at].states = if roles[at].threads == 1 {
            thread.states.clone()
        } else {
            add_tables(before, &thread.states)
        };
    }
    roles
}

/// Adds two tables. A state that one thread could not tell apart is not measured for both: its
/// part of the sum would look like the whole. What the other thread had of it joins the state that
/// includes it, so that the sum still meets the elapsed time.
fn add_tables(a: StateTable, b: &StateTable) -> StateTable {
    let mut sum: BTreeMap<State, StateTime> = BTreeMap::new();
    let mut moved: Vec<(State, u64)> = Vec::new();
    for state in State::ALL {
        let none = StateTime::default();
        let (x, y) = (a.get(&state).unwrap_or(&none), b.get(&state).unwrap_or(&none));
        let mut both = if x.ns.is_none() { x.clone() } else { y.clone() };
        both.ns = match (x.ns, y.ns) {
            (Some(x), Some(y)) => Some(x + y),
            (one, other) => {
                moved.extend(one.or(other).map(|ns| (state, ns)));
                None
            }
        };
        both.quality = both.ns.and(weaker(x.quality, y.quality));
        for included in x.includes.iter().chain(&y.includes) {
            if !both.includes.contains(included) {
                both.includes.push(*included);
            }
        }
        sum.insert(state, both);
    }
    for (state, ns) in moved.into_iter().filter(|(_, ns)| *ns > 0) {
        let holder = State::ALL.into_iter().find(|holder| {
            sum.get(holder).is_some_and(|t| t.ns.is_some() && t.includes.contains(&state))
        });
        let holder = sum.entry(holder.unwrap_or(State::Unknown)).or_default();
        holder.ns = Some(holder.ns.unwrap_or(0) + ns);
    }
    sum
}

/// The weaker of two qualities.
fn weaker(a: Option<Quality>, b: Option<Quality>) -> Option<Quality> {
    let rank = |q: Quality| match q {
        Quality::Exact => 0,
        Quality::Bounded => 1,
        Quality::Inferred => 2,
    };
    match (a, b) {
        (Some(a), Some(b)) => Some(if rank(a) >= rank(b) { a } else { b }),
        (one, other) => one.or(other),
    }
}
