//! Tests that the progress of packing can be read before, during and after the merge, in folders
//! and in object stores.

use std::sync::atomic::{AtomicUsize, Ordering};

use warpfeed::Error;
use warpfeed::pack::{Merge, Overview, Pack};

use crate::before_read::BeforeRead;
use crate::object_store::{Objects, URL};
use crate::parts::{numbers, pack_part};

fn facts(overview: &Overview) -> (u64, u64, Option<u64>, &str, bool) {
    (overview.samples, overview.total, overview.parts, &overview.missing, overview.merged)
}

#[test]
fn the_progress_of_all_parts_is_known_before_they_are_merged() {
    let (set, root) = (numbers(50), tempfile::tempdir().unwrap());
    let target = root.path().join("x.tar");
    let progress = || Merge::new(&target).progress();
    let e = progress().unwrap_err();
    assert!(e.cause().contains("neither parts nor a dataset") && e.path() == Some(&*target), "{e}");
    // Planning reads all samples, because there are few. Then the part fails in its third shard.
    let reads = AtomicUsize::new(0);
    let fails = BeforeRead(numbers(50), |_| match reads.fetch_add(1, Ordering::Relaxed) == 50 + 10 {
        true => Err(Error::in_source("gone")),
        false => Ok(()),
    });
    let packed = Pack::new(&fails).workers(1).shard_samples(4).part(1, 3).to(&target);
    packed.unwrap_err();
    assert_eq!(facts(&progress().unwrap()), (8, 50, Some(3), "0-2", false));
    pack_part(&set, root.path(), (2, 3)).unwrap();
    assert_eq!(facts(&progress().unwrap()), (8 + 18, 50, Some(3), "0-1", false));
    // Without the plan, the totals come from a part's manifest.
    std::fs::remove_file(root.path().join("x.plan.partial")).unwrap();
    assert_eq!(facts(&progress().unwrap()), (8 + 18, 50, Some(3), "0-1", false));
    // Pack again, in a single part. Only this set of parts is complete, so it is merged.
    pack_part(&set, root.path(), (0, 1)).unwrap();
    assert_eq!(facts(&progress().unwrap()), (50, 50, Some(1), "", false));
    Merge::new(&target).run().unwrap();
    assert_eq!(facts(&progress().unwrap()), (50, 50, None, "", true));
    Pack::new(&set).shard_samples(4).part(0, 2).force(true).to(&target).unwrap();
    assert_eq!(facts(&progress().unwrap()), (24, 50, Some(2), "1", false));
}

#[test]
fn the_progress_of_a_pack_without_parts_is_known() {
    let root = tempfile::tempdir().unwrap();
    let reads = AtomicUsize::new(0);
    let fails = BeforeRead(numbers(50), |_| match reads.fetch_add(1, Ordering::Relaxed) == 50 + 40 {
        true => Err(Error::in_source("gone")),
        false => Ok(()),
    });
    Pack::new(&fails).workers(1).shard_size(20_000).to(root.path().join("x.tar")).unwrap_err();
    let progress = || Merge::new(root.path().join("x.tar")).progress().unwrap();
    let overview = progress();
    assert!((1..=40).contains(&overview.samples) && overview.total == 50 && !overview.merged, "{overview:?}");
    assert_eq!((overview.parts, &*overview.missing), (Some(1), "0"));
    Pack::new(&numbers(50)).shard_size(20_000).to(root.path().join("x.tar")).unwrap();
    assert_eq!(facts(&progress()), (50, 50, None, "", true));
}

#[test]
fn the_progress_of_parts_in_a_store_is_known() {
    let (set, store) = (numbers(50), Objects::default());
    let progress = || store.merge().progress();
    assert!(progress().unwrap_err().cause().contains("neither parts nor a dataset"));
    store.part(&set, (1, 3)).unwrap();
    assert_eq!(facts(&progress().unwrap()), (16, 50, Some(3), "0,2", false));
    (0..3).for_each(|number| drop(store.part(&set, (number, 3)).unwrap()));
    assert_eq!(facts(&progress().unwrap()), (50, 50, Some(3), "", false));
    Merge::new(URL).stores(store.stores()).run().unwrap();
    assert_eq!(facts(&progress().unwrap()), (50, 50, None, "", true));
}
