//! Determines the part that a task of an array job packs.

use crate::error::{Error, Result};

struct Array {
    name: &'static str,
    index: &'static str,
    /// Variable with the index of the first task, or `None` if it is always 0.
    first: Option<&'static str>,
    /// Variable with the distance between indices, or `None` if it is always 1.
    step: Option<&'static str>,
    /// Variable with the number of tasks, or `None` if the scheduler does not set it.
    count: Option<&'static str>,
}

const ARRAYS: [Array; 3] = [
    Array {
        name: "SLURM",
        index: "SLURM_ARRAY_TASK_ID",
        first: Some("SLURM_ARRAY_TASK_MIN"),
        step: Some("SLURM_ARRAY_TASK_STEP"),
        count: Some("SLURM_ARRAY_TASK_COUNT"),
    },
    Array {
        name: "AWS Batch",
        index: "AWS_BATCH_JOB_ARRAY_INDEX",
        first: None,
        step: None,
        count: Some("AWS_BATCH_JOB_ARRAY_SIZE"),
    },
    Array { name: "Kubernetes", index: "JOB_COMPLETION_INDEX", first: None, step: None, count: None },
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
    let set: Vec<&Array> = ARRAYS.iter().filter(|array| variable(array.index).is_some()).collect();
    let array = match set[..] {
        [array] => array,
        [] => {
            let variables = ARRAYS.map(|array| format!("{} ({})", array.index, array.name)).join(", ");
            return Err(Error::config(format!(
                "not running in an array job (none of {variables} is set): pass the part and the number of parts explicitly"
            )));
        }
        [one, two, ..] => {
            return Err(Error::config(format!("{} and {} are both set: unset one of them", one.index, two.index)));
        }
    };
    let index = number(array.index)?.expect("set");
    if let Some(parts) = parts {
        return if index < parts {
            Ok((index, parts))
        } else {
            Err(Error::config(format!(
                "{} is {index}, but there are {parts} parts: expected an index less than {parts}",
                array.index
            )))
        };
    }
    let Some(count) = array.count else {
        return Err(Error::config(format!(
            "{} is {index}, but {} does not set the number of parts; pass the number explicitly",
            array.index, array.name
        )));
    };
    let Some(parts) = number(count)? else {
        return Err(Error::config(format!("{} is {index}, but {count} is not set", array.index)));
    };
    let first = array.first.map_or(Ok(None), number)?.unwrap_or(0);
    let step = array.step.map_or(Ok(None), number)?.unwrap_or(1);
    let part = index.checked_sub(first).filter(|offset| step > 0 && offset % step == 0).map(|offset| offset / step);
    match part.filter(|&part| part < parts) {
        Some(part) => Ok((part, parts)),
        None => Err(Error::config(format!(
            "{} is {index} and {count} is {parts}, with the first index {first} and the step {step}: these values do not describe a complete array job; \
             pass the number of parts explicitly",
            array.index
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
        let refused = |parts, variables: &[(&str, &str)], words: &str| {
            let e = part_from(parts, variables).unwrap_err();
            assert!(e.cause().contains(words), "{e}");
        };
        refused(None, &[], "SLURM_ARRAY_TASK_ID (SLURM), AWS_BATCH_JOB_ARRAY_INDEX (AWS Batch), JOB_COMPLETION_INDEX");
        refused(None, &[("JOB_COMPLETION_INDEX", "3")], "does not set the number of parts");
        refused(Some(3), &[("JOB_COMPLETION_INDEX", "3")], "there are 3 parts");
        refused(None, &[("SLURM_ARRAY_TASK_ID", "3")], "SLURM_ARRAY_TASK_COUNT is not set");
        refused(None, &[("SLURM_ARRAY_TASK_ID", "x")], "not a number");
        refused(
            None,
            &[("SLURM_ARRAY_TASK_ID", "3"), ("SLURM_ARRAY_TASK_COUNT", "2")],
            "do not describe a complete array job",
        );
        refused(
            None,
            &[("SLURM_ARRAY_TASK_ID", "3"), ("SLURM_ARRAY_TASK_COUNT", "2"), ("SLURM_ARRAY_TASK_STEP", "0")],
            "do not describe a complete array job",
        );
        refused(None, &[("SLURM_ARRAY_TASK_ID", "0"), ("JOB_COMPLETION_INDEX", "0")], "both set");
    }
}
