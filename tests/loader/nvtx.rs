//! Tests that, with the `nvtx` feature, a tool named by `NVTX_INJECTION64_PATH`, such as Nsight
//! Systems, receives the ranges of a trace. The tool is a small C library that records each call
//! with its thread, so the test needs a C compiler.
#![cfg(all(feature = "nvtx", target_os = "linux"))]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::process::child;
use crate::support::{NumberSource, loader};
use warpfeed::trace::span;

const TOOL: &str = r#"
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void (*function)(void);
struct callbacks { size_t bytes; int (*module)(int, function***, unsigned*); };

static FILE* calls;

static int push(const char* name) {
    fprintf(calls, "%lu %s\n", (unsigned long)pthread_self(), name);
    return 0;
}

static int pop(void) {
    fprintf(calls, "%lu\n", (unsigned long)pthread_self());
    return 0;
}

int InitializeInjectionNvtx2(const void* (*tables)(uint32_t)) {
    const struct callbacks* callbacks = tables(1);
    function** table = NULL;
    unsigned size = 0;
    if (tables(3) == NULL || tables(4) != NULL || callbacks == NULL || callbacks->bytes != sizeof(*callbacks)) return 0;
    if (callbacks->module(0, &table, &size) || callbacks->module(7, &table, &size)) return 0;
    if (!callbacks->module(5, &table, &size) || size != 16 || !callbacks->module(1, &table, &size) || size != 16) return 0;
    if (table[0] != NULL || table[16] != NULL) return 0;
    *table[9] = (function)push;
    *table[11] = (function)pop;
    calls = fopen(getenv("NVTX_TEST_CALLS"), "w");
    return calls != NULL;
}
"#;

#[test]
#[ignore = "started by the test below"]
fn load_batches_with_a_span() {
    for batch in loader(NumberSource::new(70)).workers(2).epochs(1).host().unwrap().epoch(0) {
        let _forward = span("forward");
        batch.unwrap();
    }
}

#[test]
fn a_tool_receives_the_ranges_of_every_thread() {
    let root = tempfile::tempdir().unwrap();
    let [source, library, calls] = ["tool.c", "libtool.so", "calls"].map(|name| root.path().join(name));
    std::fs::write(&source, TOOL).unwrap();
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    if !compiled.as_ref().is_ok_and(|status| status.success()) {
        return crate::require::missing("cc", format_args!("cc: {compiled:?}"));
    }
    let program = |library: &std::path::Path| {
        let mut child = child!(load_batches_with_a_span);
        child.env("NVTX_INJECTION64_PATH", library).env("NVTX_TEST_CALLS", &calls).output().unwrap()
    };
    let out = program(&library);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = std::fs::read_to_string(&calls).unwrap();
    let (mut open, mut seen) = (BTreeMap::<&str, Vec<&str>>::new(), BTreeMap::<&str, usize>::new());
    let mut threads = BTreeMap::<&str, BTreeSet<&str>>::new();
    for line in text.lines() {
        match line.split_once(' ') {
            Some((thread, name)) => {
                open.entry(thread).or_default().push(name);
                *seen.entry(name).or_default() += 1;
                threads.entry(name).or_default().insert(thread);
            }
            None => {
                assert!(open.get_mut(line).and_then(Vec::pop).is_some(), "the end of a range that is not open:\n{text}")
            }
        }
    }
    assert!(open.values().all(Vec::is_empty), "ranges that were never closed: {open:?}");
    let stages = ["read", "transform", "write"];
    assert!(stages.iter().all(|stage| seen[stage] == 70), "one range per sample in each stage: {seen:?}");
    assert!(seen["decode"] >= 10, "at least one range per group of samples: {seen:?}");
    assert_eq!([seen["forward"], seen["wait for a batch"], seen["wait for a slot"]], [10; 3], "{seen:?}");
    assert_eq!(threads["forward"], threads["wait for a batch"], "the spans of the consumer are on the same threads");
    assert!(threads["wait for a slot"].is_disjoint(&threads["decode"]), "the coordinator decodes images");

    // Without the tool, the program must still run.
    let out = program(&root.path().join("nothing.so"));
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
