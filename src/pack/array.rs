//! Determines the part that a task of an array job packs.

use crate::error::{Error, Result};

struct Scheduler {
    name: &'static str,
    index_variable: &'static str,
    /// Variable with the index of the first task, or `None` if it is always 0.
    first_variable: Option<&'static str>,
    /// Variable with the distance between indices, or `None` if it is always 1.
    step_variable: Option<&'static str>,
    /// Variable with the number of tasks, or `None` if the scheduler does not set it.
    count_variable: Option<&'static str>,
}

const SCHEDULERS: [Scheduler; 3] = [
    Scheduler {
        name: "SLURM",
        index_variable: "SLURM_ARRAY_TASK_ID",
        first_variable: Some("SLURM_ARRAY_TASK_MIN"),
        step_variable: Some("SLURM_ARRAY_TASK_STEP"),
        count_variable: Some("SLURM_ARRAY_TASK_COUNT"),
    },
    Scheduler {
        name: "AWS Batch",
        index_variable: "AWS_BATCH_JOB_ARRAY_INDEX",
        first_variable: None,
        step_variable: None,
        count_variable: Some("AWS_BATCH_JOB_ARRAY_SIZE"),
    },
    Scheduler {
        name: "Kubernetes",
        index_variable: "JOB_COMPLETION_INDEX",
        first_variable: None,
        step_variable: None,
        count_variable: None,
    },
];

/// Returns the index of the part that this task of an array job packs, and the number of parts.
/// Pass both numbers to [`Pack::part`](super::Pack::part). The function reads the environment
/// variables of the following job schedulers:
///
/// - SLURM: `SLURM_ARRAY_TASK_ID`, `_COUNT`, `_MIN` and `_STEP`;
/// - AWS Batch: `AWS_BATCH_JOB_ARRAY_INDEX` and `_SIZE`;
/// - Kubernetes: `JOB_COMPLETION_INDEX` of an indexed job. `parts` must be given.
///
/// If `parts` is given, the part is the index of the task. A smaller array job can then pack only
/// the parts that are missing.
///
/// # Errors
/// [`ErrorKind::Config`](crate::ErrorKind::Config) if no scheduler or several schedulers have set
/// their variables, if a value is not a number or contradicts the other values, or if the number of
/// parts is unknown.
pub fn part_from_env(parts: Option<u64>) -> Result<(u64, u64)> {
    from_variables(parts, &|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
}

fn from_variables(parts: Option<u64>, variable: &dyn Fn(&str) -> Option<String>) -> Result<(u64, u64)> {
    let number = |name: &str| -> Result<Option<u64>> {
        let Some(text) = variable(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| Error::config(format!("{name} is {text:?}, which is not a number")))
    };
    let schedulers: Vec<&Scheduler> =
        SCHEDULERS.iter().filter(|scheduler| variable(scheduler.index_variable).is_some()).collect();
    let scheduler = match schedulers[..] {
        [scheduler] => scheduler,
        [] => {
            let variables =
                SCHEDULERS.map(|scheduler| format!("{} ({})", scheduler.index_variable, scheduler.name)).join(", ");
            return Err(Error::config(format!(
                "not running in an array job (none of {variables} is set): pass the part and the number of parts explicitly"
            )));
        }
        [first_scheduler, second_scheduler, ..] => {
            return Err(Error::config(format!(
                "{} and {} are both set: unset one of them",
                first_scheduler.index_variable, second_scheduler.index_variable
            )));
        }
    };
    let index = number(scheduler.index_variable)?.expect("set");
    if let Some(parts) = parts {
        return if index < parts {
            Ok((index, parts))
        } else {
            Err(Error::config(format!(
                "{} is {index}, but there are {parts} parts: expected an index less than {parts}",
                scheduler.index_variable
            )))
        };
    }
    let Some(count) = scheduler.count_variable else {
        return Err(Error::config(format!(
            "{} is {index}, but {} does not set the number of parts; pass the number explicitly",
            scheduler.index_variable, scheduler.name
        )));
    };
    let Some(parts) = number(count)? else {
        return Err(Error::config(format!("{} is {index}, but {count} is not set", scheduler.index_variable)));
    };
    let first = scheduler.first_variable.map_or(Ok(None), number)?.unwrap_or(0);
    let step = scheduler.step_variable.map_or(Ok(None), number)?.unwrap_or(1);
    let part = index.checked_sub(first).filter(|offset| step > 0 && offset % step == 0).map(|offset| offset / step);
    match part.filter(|&part| part < parts) {
        Some(part) => Ok((part, parts)),
        None => Err(Error::config(format!(
            "{} is {index} and {count} is {parts}, with the first index {first} and the step {step}: these values do not describe a complete array job; \
             pass the number of parts explicitly",
            scheduler.index_variable
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part_from(parts: Option<u64>, variables: &[(&str, &str)]) -> Result<(u64, u64)> {
        from_variables(parts, &|name| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn array_tasks_find_their_parts() {
        let slurm = [
            ("SLURM_ARRAY_TASK_ID", "7"),
            ("SLURM_ARRAY_TASK_COUNT", "4"),
            ("SLURM_ARRAY_TASK_MIN", "1"),
            ("SLURM_ARRAY_TASK_STEP", "2"),
        ];
        assert_eq!(part_from(None, &slurm).unwrap(), (3, 4));
        assert_eq!(part_from(Some(64), &slurm).unwrap(), (7, 64));
        let aws = [("AWS_BATCH_JOB_ARRAY_INDEX", "5"), ("AWS_BATCH_JOB_ARRAY_SIZE", "6")];
        assert_eq!(part_from(None, &aws).unwrap(), (5, 6));
        assert_eq!(part_from(Some(12), &[("JOB_COMPLETION_INDEX", "0")]).unwrap(), (0, 12));
    }

    #[test]
    fn incomplete_or_contradictory_variables_are_rejected() {
        let assert_refused = |parts, variables: &[(&str, &str)], words: &str| {
            let e = part_from(parts, variables).unwrap_err();
            assert!(e.cause().contains(words), "{e}");
        };
        assert_refused(
            None,
            &[],
            "SLURM_ARRAY_TASK_ID (SLURM), AWS_BATCH_JOB_ARRAY_INDEX (AWS Batch), JOB_COMPLETION_INDEX",
        );
        assert_refused(None, &[("JOB_COMPLETION_INDEX", "3")], "does not set the number of parts");
        assert_refused(Some(3), &[("JOB_COMPLETION_INDEX", "3")], "there are 3 parts");
        assert_refused(None, &[("SLURM_ARRAY_TASK_ID", "3")], "SLURM_ARRAY_TASK_COUNT is not set");
        assert_refused(None, &[("SLURM_ARRAY_TASK_ID", "x")], "not a number");
        assert_refused(
            None,
            &[("SLURM_ARRAY_TASK_ID", "3"), ("SLURM_ARRAY_TASK_COUNT", "2")],
            "do not describe a complete array job",
        );
        assert_refused(
            None,
            &[("SLURM_ARRAY_TASK_ID", "3"), ("SLURM_ARRAY_TASK_COUNT", "2"), ("SLURM_ARRAY_TASK_STEP", "0")],
            "do not describe a complete array job",
        );
        assert_refused(None, &[("SLURM_ARRAY_TASK_ID", "0"), ("JOB_COMPLETION_INDEX", "0")], "both set");
    }
}
