//! The rank of this process, and how launchers pass it.

use std::ops::Range;

use crate::error::{Error, Result};

/// The rank of this process among the processes that train together.
///
/// ```no_run
/// # fn main() -> warpfeed::Result<()> {
/// use warpfeed::{Loader, Rank};
///
/// let rank = Rank::from_env()?.unwrap_or(Rank::SINGLE); // torchrun, mpirun, srun, or none of them
/// let device = rank.local_rank.unwrap_or(0);
/// let loader = Loader::new("train.lmdb").batch_size(256).shuffle(42);
/// let batches = loader.rank(rank.rank, rank.world_size).host()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Rank {
    /// Rank of this process, starting at 0.
    pub rank: usize,
    /// Number of processes that train together.
    pub world_size: usize,
    /// Rank of this process among the processes on its machine, starting at 0, if the launcher sets
    /// it. Usually, this is also the index of the GPU that the process uses.
    pub local_rank: Option<usize>,
    /// Number of processes on this machine, if the launcher sets it.
    pub local_world_size: Option<usize>,
}

struct Launcher {
    name: &'static str,
    rank: &'static str,
    world_size: &'static str,
    local_rank: &'static str,
    local_world_size: &'static str,
    /// A variable that is set only in the processes that this launcher starts, and the command that
    /// starts them. `None` if this is true of all variables above.
    start_marker: Option<(&'static str, &'static str)>,
}

/// The launchers, from the innermost to the outermost. For example, srun may start mpirun, which
/// may start torchrun. The innermost launcher has precedence, because it started this process.
const LAUNCHERS: [Launcher; 3] = [
    Launcher {
        name: "torchrun",
        rank: "RANK",
        world_size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_world_size: "LOCAL_WORLD_SIZE",
        start_marker: None,
    },
    Launcher {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        world_size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_world_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
        start_marker: None,
    },
    Launcher {
        name: "SLURM",
        rank: "SLURM_PROCID",
        world_size: "SLURM_NTASKS",
        local_rank: "SLURM_LOCALID",
        local_world_size: "SLURM_NTASKS_PER_NODE",
        // In a batch script, SLURM sets the variables as in process 0 of the requested tasks.
        start_marker: Some(("SLURM_STEP_ID", "srun")),
    },
];

impl Rank {
    /// The rank of a single process.
    pub const SINGLE: Rank = Rank { rank: 0, world_size: 1, local_rank: None, local_world_size: None };

    /// Creates rank `rank` of `world_size` processes.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if `rank` is not less than `world_size`.
    pub fn new(rank: usize, world_size: usize) -> Result<Self> {
        if rank >= world_size {
            return Err(Error::config(format!(
                "rank {rank} is not less than the world size {world_size}: ranks start at 0"
            )));
        }
        Ok(Rank { rank, world_size, local_rank: None, local_world_size: None })
    }

    /// Reads the rank that the launcher set in the environment. Returns `None` if no launcher has
    /// set its variables. These launchers are supported, in order of precedence:
    ///
    /// - torchrun: `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`;
    /// - Open MPI: `OMPI_COMM_WORLD_RANK`, ...`_SIZE`, ...`_LOCAL_RANK`, ...`_LOCAL_SIZE`;
    /// - SLURM: `SLURM_PROCID`, `SLURM_NTASKS`, `SLURM_LOCALID`, `SLURM_NTASKS_PER_NODE`.
    ///
    /// SLURM sets the rank to 0 in a batch script as well, although the script runs only once. Only
    /// `srun` sets `SLURM_STEP_ID`, so rank 0 of several tasks is rejected without that variable.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) in these cases:
    ///
    /// - For the first launcher with variables, only one of the rank and the world size is set, the
    ///   rank is not less than the world size, or one of these numbers or the local rank is not a
    ///   number. (An invalid number of local processes is ignored.)
    /// - The process is the batch script of several SLURM tasks, and neither torchrun nor Open MPI
    ///   has set its variables.
    /// - A later launcher contradicts the first one by reporting a rank above 0 and a larger world
    ///   size.
    pub fn from_env() -> Result<Option<Self>> {
        Self::from_variables(&|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let mut detected: Option<(Rank, &Launcher)> = None;
        for launcher in &LAUNCHERS {
            match (detected, launcher.read(variable)) {
                (None, Ok(Some(rank))) => detected = Some((rank, launcher)),
                (None, Err(e)) => return Err(e),
                (Some((inner_rank, inner_launcher)), Ok(Some(outer_rank)))
                    if outer_rank.rank > 0 && outer_rank.world_size > inner_rank.world_size =>
                {
                    return Err(Error::config(format!(
                        "{} is {} and {} is {}, but {} is {} and {} is {}: unset the stale ones",
                        inner_launcher.rank,
                        inner_rank.rank,
                        inner_launcher.world_size,
                        inner_rank.world_size,
                        launcher.rank,
                        outer_rank.rank,
                        launcher.world_size,
                        outer_rank.world_size
                    )));
                }
                _ => {}
            }
        }
        Ok(detected.map(|(rank, _)| rank))
    }

    /// Returns the ranks on this machine, assuming that its processes are numbered consecutively.
    /// If the number of local processes is unknown or contradicts the local rank, returns only this
    /// rank.
    pub(crate) fn machine_ranks(&self) -> Range<usize> {
        let ranks = self.local_world_size.unwrap_or(1).clamp(1, self.world_size);
        let local_rank = self.local_rank.unwrap_or(self.rank % ranks);
        let first = self.rank.saturating_sub(local_rank);
        if self.rank < first + ranks { first..(first + ranks).min(self.world_size) } else { self.rank..self.rank + 1 }
    }

    /// Like [`from_env`](Rank::from_env), but fails if no launcher set the rank.
    pub(crate) fn from_launcher() -> Result<Self> {
        Self::from_env()?.ok_or_else(|| {
            let variables = LAUNCHERS.each_ref().map(|l| format!("{} and {} ({})", l.rank, l.world_size, l.name)).join(", ");
            Error::config(format!(
                "distributed: no launcher has set the rank of this process (looked for {variables}); start the program with a launcher, or set rank(rank, world_size)"
            ))
        })
    }
}

impl Launcher {
    /// Returns `None` if neither the rank nor the world size is set.
    fn read(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Rank>> {
        let read_number = |name: &str| match variable(name) {
            None => Ok(None),
            Some(text) => match text.trim().parse::<usize>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(Error::config(format!("{name} is {text:?}, which is not a number"))),
            },
        };
        let incomplete_error = |set_variable: &str, number, unset_variable| {
            let name = self.name;
            Err(Error::config(format!(
                "{set_variable} is {number}, but {unset_variable} is not set: was this process started by {name}?"
            )))
        };
        match (read_number(self.rank)?, read_number(self.world_size)?) {
            (None, None) => Ok(None),
            (Some(n), None) => incomplete_error(self.rank, n, self.world_size),
            (None, Some(n)) => incomplete_error(self.world_size, n, self.rank),
            (Some(rank), Some(world_size)) if rank >= world_size => Err(Error::config(format!(
                "{} is {rank}, but {} is {world_size}: ranks start at 0",
                self.rank, self.world_size
            ))),
            // A batch script always has rank 0, even if it requests several tasks.
            (Some(0), Some(world_size))
                if world_size > 1 && self.start_marker.is_some_and(|(name, _)| variable(name).is_none()) =>
            {
                let (unset_variable, launcher) = self.start_marker.expect("the guard checked this");
                Err(Error::config(format!(
                    "{} is 0 and {} is {world_size}, but {unset_variable} is not set: this is the SLURM batch script itself, not a task; \
                     start the program with {launcher}, or set rank(rank, world_size)",
                    self.rank, self.world_size
                )))
            }
            (Some(rank), Some(world_size)) => {
                // The value is only a hint, because a job step inherits it from the job, so it may
                // exceed the number of processes in the step.
                let local_world_size = read_number(self.local_world_size).ok().flatten().map(|n| n.min(world_size));
                Ok(Some(Rank { rank, world_size, local_rank: read_number(self.local_rank)?, local_world_size }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `environment` is a text such as `NAME=value NAME=value`.
    fn rank_in(environment: &str) -> Result<(usize, usize, Option<usize>), String> {
        let variable = |name: &str| {
            let pairs = environment.split_whitespace().filter_map(|pair| pair.split_once('='));
            pairs.into_iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
        };
        let rank = Rank::from_variables(&variable).map_err(|e| e.to_string())?.ok_or("none")?;
        Ok((rank.rank, rank.world_size, rank.local_rank))
    }

    #[test]
    fn the_innermost_launcher_has_precedence() {
        let mpi = "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1";
        let slurm = "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0";
        assert_eq!(rank_in("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1"), Ok((5, 8, Some(1))));
        let local_world_size = |variables: &str| {
            let variable = |name: &str| {
                let pairs = variables.split_whitespace().filter_map(|pair| pair.split_once('='));
                pairs.into_iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
            };
            Rank::from_variables(&variable).unwrap().unwrap().local_world_size
        };
        assert_eq!(local_world_size("RANK=5 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4"), Some(4));
        assert_eq!(local_world_size(&format!("{mpi} OMPI_COMM_WORLD_LOCAL_SIZE=2")), Some(2));
        assert_eq!(local_world_size(&format!("{slurm} SLURM_NTASKS_PER_NODE=1")), Some(1));
        assert_eq!(local_world_size(slurm), None);
        assert_eq!(rank_in(mpi), Ok((3, 4, Some(1))));
        assert_eq!(rank_in(slurm), Ok((1, 2, Some(0))));
        assert_eq!(rank_in("RANK=0 WORLD_SIZE=1"), Ok((0, 1, None)));
        // srun may start torchrun once per machine, and torchrun then starts the processes. The
        // same applies to mpirun, and to torchrun in a batch script.
        assert_eq!(rank_in(&format!("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 {slurm}")), Ok((5, 8, Some(1))));
        assert_eq!(rank_in(&format!("{mpi} {slurm}")), Ok((3, 4, Some(1))));
        assert_eq!(rank_in("RANK=0 WORLD_SIZE=1 SLURM_PROCID=0 SLURM_NTASKS=8"), Ok((0, 1, None)));
        assert_eq!(rank_in("RANK=0 WORLD_SIZE=1 SLURM_NTASKS=8"), Ok((0, 1, None)), "set by salloc, without a process");
    }

    #[test]
    fn the_local_world_size_is_a_hint_and_at_most_the_world_size() {
        let local_world_size = |value: &str| {
            let variable = |name: &str| match name {
                "SLURM_PROCID" | "SLURM_STEP_ID" => Some("0".to_owned()),
                "SLURM_NTASKS" => Some("2".to_owned()),
                "SLURM_NTASKS_PER_NODE" => Some(value.to_owned()),
                _ => None,
            };
            Rank::from_variables(&variable).unwrap().unwrap().local_world_size
        };
        assert_eq!(["1", "2", "8", "2(x3)"].map(local_world_size), [Some(1), Some(2), Some(2), None]);
    }

    #[test]
    fn missing_and_contradictory_variables_are_named() {
        let check_refused = |environment: &str, words: &[&str]| {
            let e = rank_in(environment).unwrap_err();
            assert!(words.iter().all(|word| e.contains(word)), "{environment}: {e}");
        };
        assert_eq!(rank_in("PATH=/bin").unwrap_err(), "none");
        check_refused("RANK=3", &["RANK is 3, but WORLD_SIZE is not set"]);
        check_refused("SLURM_NTASKS=8", &["SLURM_NTASKS is 8, but SLURM_PROCID is not set", "SLURM?"]);
        check_refused(
            "SLURM_PROCID=0 SLURM_NTASKS=8",
            &["but SLURM_STEP_ID is not set", "with srun, or set rank(rank, world_size)"],
        );
        assert_eq!(rank_in("SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_ID=0 SLURM_LOCALID=0"), Ok((0, 8, Some(0))));
        assert_eq!(rank_in("SLURM_PROCID=0 SLURM_NTASKS=1"), Ok((0, 1, None)), "a world of one is valid without srun");
        check_refused("RANK=8 WORLD_SIZE=8", &["RANK is 8, but WORLD_SIZE is 8"]);
        check_refused("RANK=x WORLD_SIZE=8", &["RANK is \"x\", which is not a number"]);
        check_refused("RANK=-1 WORLD_SIZE=8", &["RANK is \"-1\""]);
        check_refused("RANK=0 WORLD_SIZE=2 LOCAL_RANK=", &["LOCAL_RANK is \"\""]);
        check_refused(
            "RANK=0 WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8",
            &["RANK is 0 and WORLD_SIZE is 1, but OMPI_COMM_WORLD_RANK is 3 and OMPI_COMM_WORLD_SIZE is 8"],
        );
        check_refused("RANK=0 WORLD_SIZE=1 SLURM_PROCID=3 SLURM_NTASKS=8", &["WORLD_SIZE is 1, but SLURM_PROCID is 3"]);
    }
}
