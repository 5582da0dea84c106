//! The number of draws from each source of a mixture, round by round.
//!
//! Rounds with the same quotas form a section. A section ends when the proportions change, or when
//! a source that is not repeated runs out. Each section stores the earlier draws from every source,
//! so any round can be looked up without replaying the rounds before it.

/// The quotas of all rounds, as consecutive sections. The first section starts at round 0.
#[derive(Debug, Clone)]
pub(super) struct Quotas {
    /// Number of draws in a full round. Its quotas are the proportions rounded to whole draws.
    pub(super) draws_per_round: u64,
    /// For each source, the number of draws after which it ends, or `u64::MAX` if it is repeated.
    pub(super) max_draws: Box<[u64]>,
    pub(super) sections: Vec<Section>,
}

/// Consecutive rounds with the same quotas, starting at round `first_round`.
#[derive(Debug, Clone)]
pub(super) struct Section {
    pub(super) first_round: u64,
    /// Number of draws per round. It is less than a full round if all sources with a proportion
    /// above 0 run out in this section, and 0 after the end of the run.
    pub(super) draws: u64,
    pub(super) quotas: Box<[Quota]>,
}

/// The draws from one source in each round of a section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quota {
    pub(super) draws: u64,
    /// Number of draws per round from this source and all sources before it.
    pub(super) ticket_end: u64,
    /// Number of draws from this source before the section.
    pub(super) draws_before: u64,
}

impl Section {
    /// `samples_per_draw` has one element per source.
    pub(super) fn sample_count(&self, samples_per_draw: &[u64]) -> u64 {
        self.quotas.iter().zip(samples_per_draw).map(|(quota, samples)| quota.draws * samples).sum()
    }
}

impl Quotas {
    /// At least one of `proportions` must be greater than 0.
    pub(super) fn new(draws_per_round: u64, max_draws: Box<[u64]>, proportions: &[f64]) -> Self {
        let draws_before = vec![0; max_draws.len()];
        let mut quotas = Quotas { draws_per_round, max_draws, sections: Vec::new() };
        quotas.add_sections(0, draws_before, proportions);
        quotas
    }

    pub(super) fn section_index(&self, round: u64) -> usize {
        self.sections.partition_point(|section| section.first_round <= round) - 1
    }

    pub(super) fn set_proportions(&mut self, round: u64, proportions: &[f64]) {
        if round > 0 && self.sections[self.section_index(round - 1)].draws < self.draws_per_round {
            // The run has ended before this round.
            return;
        }
        let section = &self.sections[self.section_index(round)];
        let draws_before = section
            .quotas
            .iter()
            .map(|quota| quota.draws_before + (round - section.first_round) * quota.draws)
            .collect();
        self.sections.retain(|section| section.first_round < round);
        self.add_sections(round, draws_before, proportions);
    }

    /// Returns the number of draws in the whole run, or `None` if the number is unlimited.
    pub(super) fn total_draws(&self) -> Option<u64> {
        let last = self.sections.last().filter(|last| last.draws == 0)?;
        Some(last.quotas.iter().map(|quota| quota.draws_before).sum())
    }

    /// Returns the first round that starts after at least `samples` samples or the end of the run.
    pub(super) fn round_after(&self, samples: u64, samples_per_draw: &[u64]) -> u64 {
        let mut remaining = samples;
        for (section, next_section) in self.sections.iter().zip(self.sections[1..].iter().map(Some).chain([None])) {
            let samples_per_round = section.sample_count(samples_per_draw);
            let rounds = if samples_per_round == 0 { 0 } else { remaining.div_ceil(samples_per_round) };
            match next_section {
                Some(next_section) if rounds > next_section.first_round - section.first_round => {
                    remaining -= samples_per_round * (next_section.first_round - section.first_round)
                }
                _ => return section.first_round + rounds,
            }
        }
        unreachable!("the last section has no successor")
    }

    /// `draws_before` contains the earlier draws from each source.
    fn add_sections(&mut self, mut round: u64, mut draws_before: Vec<u64>, proportions: &[f64]) {
        loop {
            let remaining: Vec<u64> =
                self.max_draws.iter().zip(&draws_before).map(|(max_draws, before)| max_draws - before).collect();
            let mut open_proportions: Vec<f64> = proportions.to_vec();
            open_proportions
                .iter_mut()
                .zip(&remaining)
                .filter(|(_, remaining)| **remaining == 0)
                .for_each(|(share, _)| *share = 0.0);
            let mut draws = apportion(&open_proportions, self.draws_per_round);
            let is_limited = |source: &usize| self.max_draws[*source] != u64::MAX && draws[*source] > 0;
            let rounds = (0..remaining.len()).filter(is_limited).map(|source| remaining[source] / draws[source]).min();
            if rounds == Some(0) {
                draws = self.ending_round_quotas(&remaining, open_proportions);
            }
            let mut ticket_end = 0;
            let quotas = draws.iter().zip(&draws_before).map(|(&draws, &draws_before)| {
                ticket_end += draws;
                Quota { draws, ticket_end, draws_before }
            });
            let quotas = quotas.collect();
            self.sections.push(Section { first_round: round, draws: ticket_end, quotas });
            let (Some(rounds), true) = (rounds.map(|rounds| rounds.max(1)), ticket_end > 0) else { return };
            draws_before.iter_mut().zip(&draws).for_each(|(draws_before, draws)| *draws_before += draws * rounds);
            round += rounds;
        }
    }

    /// Returns the quotas of a round in which a source ends. The other sources share the remaining
    /// draws of the round. `remaining` contains the remaining draws from each source.
    fn ending_round_quotas(&self, remaining: &[u64], mut open_proportions: Vec<f64>) -> Vec<u64> {
        let mut final_draws = vec![0; remaining.len()];
        loop {
            let remaining_draws = self.draws_per_round - final_draws.iter().sum::<u64>();
            let draws = apportion(&open_proportions, remaining_draws);
            let exhausted_sources: Vec<usize> =
                (0..remaining.len()).filter(|&source| draws[source] > remaining[source]).collect();
            if exhausted_sources.is_empty() {
                return draws.iter().zip(&final_draws).map(|(draws, final_draws)| draws + final_draws).collect();
            }
            exhausted_sources
                .iter()
                .for_each(|&source| (final_draws[source], open_proportions[source]) = (remaining[source], 0.0));
        }
    }
}

/// Divides `draws` with the largest remainder method, so that the quotas sum to `draws`. In a tie,
/// the first source gets the draw. If all proportions are 0, so are the quotas.
pub(super) fn apportion(proportions: &[f64], draws: u64) -> Vec<u64> {
    // Proportions near the limit of f64 could otherwise overflow the sum.
    let largest = proportions.iter().copied().fold(0.0, f64::max);
    if largest == 0.0 {
        return vec![0; proportions.len()];
    }
    let sum: f64 = proportions.iter().map(|p| p / largest).sum();
    let exact: Vec<f64> = proportions.iter().map(|p| p / largest / sum * draws as f64).collect();
    let mut quotas: Vec<u64> = exact.iter().map(|x| x.floor() as u64).collect();
    let mut by_remainder: Vec<usize> = (0..exact.len()).filter(|&source| proportions[source] > 0.0).collect();
    by_remainder.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()));
    let missing = draws.saturating_sub(quotas.iter().sum()) as usize;
    by_remainder.into_iter().cycle().take(missing).for_each(|source| quotas[source] += 1);
    quotas
}
