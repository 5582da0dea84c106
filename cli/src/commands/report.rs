//! The `report` subcommand: writes a self-contained HTML report of a run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use warpfeed::{Error, Stats, Verdict};

use crate::{Outcome, output};

/// Write an HTML report of a loader run
///
/// The report is one HTML file that works offline. It shows the bottleneck of the loader, the
/// workers' time by stage, the stall over time and the slowest samples. With --trace it also shows
/// a timeline of the traced batches. The input is the output of `warpfeed bench --json`, or
/// `batches.stats()` as JSON.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  warpfeed bench train.lmdb --report report.html  # from a measurement
  warpfeed bench train.lmdb --json > stats.json
  warpfeed report stats.json --out report.html
  warpfeed report stats.json --trace trace.json --out report.html")]
pub(crate) struct Args {
    /// Statistics as JSON
    stats: PathBuf,
    /// HTML file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Trace of the same run, for the timeline
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// Maximum number of spans in the timeline. Browsers draw this number of spans without a noticeable
/// delay.
const MAX_SPANS: usize = 4000;

impl Args {
    pub(crate) fn run(self) -> Outcome {
        let document: Value = read(&self.stats)?;
        let inner = document.get("stats").unwrap_or(&document);
        let error =
            |e| Error::in_source(format!("the file does not contain loader statistics: {e}")).at_path(&self.stats);
        let stats = stats(inner).map_err(error)?;
        let title = match document.get("path").and_then(Value::as_str) {
            Some(path) => path.to_owned(),
            None => self.stats.display().to_string(),
        };
        write(&self.out, &title, &stats, &stats.verdict(), self.trace.as_deref())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn stats(value: &Value) -> Result<Stats, String> {
    if value.get("workers").is_none() {
        return Err("\"workers\" is missing".to_owned());
    }
    serde_json::from_value(value.clone()).map_err(|e| e.to_string())
}

fn read(path: &Path) -> warpfeed::Result<Value> {
    let bytes = fs::read(path).map_err(|e| Error::io(path, &e))?;
    serde_json::from_slice(&bytes).map_err(|e| Error::in_source(format!("the file is not JSON: {e}")).at_path(path))
}

/// Writes an HTML report of a run to `out`. `verdict` is the verdict of `stats`. With `trace`, a
/// file written by [`Loader::trace`](warpfeed::Loader::trace), the report contains a timeline.
///
/// # Errors
/// If `trace` cannot be read or is not a trace, or if `out` cannot be written.
pub fn write(out: &Path, title: &str, stats: &Stats, verdict: &Verdict, trace: Option<&Path>) -> warpfeed::Result<()> {
    let spans = trace.map(|path| timeline(&read(path)?, path)).transpose()?;
    let data = json!({ "title": title, "stats": stats, "verdict": verdict, "spans": spans });
    // Escape `<`, because the data could end the script element.
    let data = data.to_string().replace('<', "\\u003c");
    let page = include_str!("report.html").replace("/*DATA*/", &data);
    output::write(out, page.as_bytes())
}

/// Returns the first [`MAX_SPANS`] spans of a trace, grouped by row. Each span is an array of its
/// name, its start and end in microseconds, its depth, and its details.
fn timeline(trace: &Value, path: &Path) -> warpfeed::Result<Value> {
    let events = trace.get("traceEvents").and_then(Value::as_array);
    let events = events
        .ok_or_else(|| Error::in_source("the file is not a trace: it has no array \"traceEvents\"").at_path(path))?;
    let row_id = |event: &Value| Some((event.get("pid")?.as_u64()?, event.get("tid")?.as_u64()?));
    let mut names = BTreeMap::new();
    let mut spans = Vec::new();
    for event in events {
        let Some(row) = row_id(event) else { continue };
        let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("ph") {
            "M" if text("name") == "thread_name" => {
                names.insert(row, event["args"]["name"].as_str().unwrap_or_default().to_owned());
            }
            "X" => {
                let (begin, length) = (event["ts"].as_f64(), event["dur"].as_f64());
                if let (Some(begin), Some(length)) = (begin, length) {
                    names.entry(row).or_insert_with(|| format!("thread {}", row.1));
                    spans.push((begin, begin + length, row, event));
                }
            }
            _ => {}
        }
    }
    spans.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let left_out = spans.len().saturating_sub(MAX_SPANS);
    spans.truncate(MAX_SPANS);
    let (first_begin, last_end) = spans.iter().fold((f64::MAX, f64::MIN), |(from, to), s| (from.min(s.0), to.max(s.1)));
    // The timeline shows the consumer first, then the other rows of the host, then the device.
    let mut rows: Vec<_> = names.into_iter().collect();
    rows.sort_by_key(|((process, thread), name)| (*process, name != "consumer", *thread));
    let rows: Vec<Value> = rows
        .into_iter()
        .map(|(row, name)| {
            let mut open_span_ends: Vec<f64> = Vec::new();
            let mut row_spans = Vec::new();
            for (begin, end, _, event) in spans.iter().filter(|s| s.2 == row) {
                open_span_ends.retain(|outer| outer > begin);
                let details =
                    event["args"].as_object().into_iter().flatten().map(|(key, value)| format!("{key} {value}"));
                row_spans.push(json!([
                    event["name"],
                    begin,
                    end,
                    open_span_ends.len(),
                    details.collect::<Vec<_>>().join(", ")
                ]));
                open_span_ends.push(*end);
            }
            json!({ "name": name, "spans": row_spans })
        })
        .filter(|row| row["spans"].as_array().is_some_and(|spans| !spans.is_empty()))
        .collect();
    Ok(json!({ "rows": rows, "from": first_begin, "to": last_end, "left_out": left_out }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_threads_without_names_are_shown() {
        let span = |tid: u64| json!({ "ph": "X", "pid": 1, "tid": tid, "name": "read", "ts": 5.0, "dur": 2.0 });
        let name = json!({ "ph": "M", "pid": 1, "tid": 8, "name": "thread_name", "args": { "name": "worker" } });
        let trace = json!({ "traceEvents": [span(7), span(8), name] });
        let rows = timeline(&trace, Path::new("trace.json")).unwrap()["rows"].clone();
        let spans = json!([["read", 5.0, 7.0, 0, ""]]);
        assert_eq!(rows, json!([{ "name": "thread 7", "spans": spans }, { "name": "worker", "spans": spans }]));
    }
}
