//! Which of the free units a task gets (PURE).

/// A unit, as far as choosing goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// See [`crate::oci::devices::Unit::id`].
    pub id: String,
    /// In MiB; 0 where nobody knows.
    pub memory_mib: u64,
    /// Units of one group reach each other fast, those of an earlier kind of group faster. `None`: it is in none.
    pub groups: [Option<u64>; 2],
    /// See [`super::place::nodes`].
    pub nodes: Vec<String>,
    /// How many containers may have it at once.
    pub replicas: u32,
    /// Out of order: nobody gets it.
    pub sick: bool,
}

/// `count` of these, each with the number of containers that have it and the time of its last lease; `None`: there are too
/// few. The smallest that do, so that the larger ones stay for those who need them; of one group, over NVLink or else on one NUMA node, if there are enough;
/// those that fewer share; those that rested longest.
pub fn choose(free: &[(&Place, u32, u64)], count: usize) -> Option<Vec<String>> {
    if free.len() < count {
        return None;
    }
    let mut sorted: Vec<_> = free.to_vec();
    sorted.sort_by_key(|(place, holders, last)| (place.memory_mib, *holders, *last));
    let cost = |set: &Vec<(&Place, u32, u64)>| {
        let sum = |of: fn(&(&Place, u32, u64)) -> u64| set.iter().map(of).fold(0, u64::saturating_add);
        (
            sum(|(place, ..)| place.memory_mib),
            sum(|(_, holders, _)| (*holders).into()),
            sum(|(.., last)| *last),
        )
    };
    let whole = |kind: usize| {
        let mut groups: Vec<u64> = sorted.iter().filter_map(|(place, ..)| place.groups[kind]).collect();
        groups.sort_unstable();
        groups.dedup();
        let of = |group: u64| {
            let own = sorted.iter().filter(move |(place, ..)| place.groups[kind] == Some(group));
            own.take(count).copied().collect::<Vec<_>>()
        };
        groups.into_iter().map(of).filter(|set| set.len() == count).min_by_key(cost)
    };
    let whole = if count > 1 { whole(0).or_else(|| whole(1)) } else { whole(1) };
    let mut chosen: Vec<&str> = match &whole {
        Some(set) => set.iter().map(|(place, ..)| place.id.as_str()).collect(),
        None => sorted.iter().take(count).map(|(place, ..)| place.id.as_str()).collect(),
    };
    // As the worker numbers them.
    chosen.sort_by_key(|id| free.iter().position(|(place, ..)| place.id == *id));
    Some(chosen.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
