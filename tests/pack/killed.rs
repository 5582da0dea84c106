//! Kills processes that pack or merge, at random moments. The dataset must not open before it is
//! complete, and must then have the same bytes as without kills. If other processes finish and
//! merge the part of a suspended process, the process must change nothing when it continues.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use warpfeed::pack::{Merge, Pack};
use warpfeed::sampler::Rng;
use warpfeed::source::{Source, open};

use crate::before_read::BeforeRead;
use crate::parts::{files, numbers, pack_part, read_all};
use crate::process::child;

const TARGET: &str = "WARPFEED_TEST_PACK_FOLDER";
const WORK: &str = "WARPFEED_TEST_PACK_WORK";
const SAMPLES: usize = 90;
const PARTS: u64 = 3;

fn slow() -> impl Source {
    BeforeRead(numbers(SAMPLES), |_| {
        std::thread::sleep(Duration::from_micros(200));
        Ok(())
    })
}

#[test]
#[ignore = "started by another test"]
fn pack_until_killed() {
    let (Some(folder), Ok(work)) = (std::env::var_os(TARGET), std::env::var(WORK)) else { return };
    let (folder, source) = (Path::new(&folder), slow());
    println!("\nbegins");
    let _ = match &*work {
        "merge" => Merge::new(folder.join("x.tar")).run().map(drop),
        "all" => Pack::new(&source).workers(2).shard_samples(4).to(folder.join("x.tar")).map(drop),
        number => pack_part(&source, folder, (number.parse().unwrap(), PARTS)).map(drop),
    };
}

/// A process that packs or merges. Dropping it kills the process, so a failed test leaves none
/// behind.
struct Worker {
    child: Child,
    /// Keeps the pipe open, because the process writes to it.
    out: BufReader<ChildStdout>,
}

impl Worker {
    fn start(folder: &Path, work: &str) -> Worker {
        let mut command = child!(pack_until_killed);
        let mut child = command.env(TARGET, folder).env(WORK, work).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut worker = Worker { child, out };
        let mut lines = worker.out.by_ref().lines().map_while(std::io::Result::ok);
        assert!(lines.any(|line| line == "begins"), "the process did not begin");
        worker
    }

    fn works(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends a signal with the shell's `kill`, because std can only send SIGKILL.
    fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status();
        assert!(sent.unwrap().success(), "{name}");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lasts(folder: &Path, work: &str) -> Duration {
    let mut worker = Worker::start(folder, work);
    let begun = Instant::now();
    worker.child.wait().unwrap();
    begun.elapsed()
}

/// Starts one or two processes in each of `kills` rounds, and kills them, or suspends them until
/// their dataset is merged. With `plain`, packs without parts.
fn kill(kills: u64, seed: u64, plain: bool) {
    let source = slow();
    let reference = tempfile::tempdir().unwrap();
    Pack::new(&source).shard_samples(4).to(reference.path().join("x.tar")).unwrap();
    let (expected, samples) = (files(reference.path()), read_all(&source));
    // The duration depends on the disk and on the load of the machine.
    let measured = tempfile::tempdir().unwrap();
    let (packing, merging) = match plain {
        true => (lasts(measured.path(), "all"), Duration::ZERO),
        false => {
            let parts = (0..PARTS).map(|part| lasts(measured.path(), &part.to_string())).max().unwrap();
            (parts, lasts(measured.path(), "merge"))
        }
    };
    let mut root = tempfile::tempdir().unwrap();
    let (mut sets, mut opened, mut alive, mut late) = (0, 0, 0, 0);
    let mut suspended = Vec::<Worker>::new();
    for number in 0..kills {
        let mut rng = Rng::new(seed, 0, number);
        let folder = root.path().to_owned();
        let mut works = vec![match rng.below(5) {
            _ if plain => "all".to_owned(),
            0 | 1 => "merge".to_owned(),
            part => (part - 2).to_string(),
        }];
        if rng.below(4) == 0 {
            works.push(works[0].clone());
        }
        if !plain && works[0] == "merge" && rng.below(2) == 0 {
            (0..PARTS).for_each(|number| drop(pack_part(&source, &folder, (number, PARTS)).unwrap()));
        }
        let workers: Vec<_> = works.iter().map(|work| Worker::start(&folder, work)).collect();
        let whole = if works[0] == "merge" { merging } else { packing };
        std::thread::sleep(Duration::from_micros(rng.below(whole.as_micros() as u64 + 1_000)));
        // A merging process is not suspended, because it holds a lock that other merges wait for.
        let suspends = cfg!(unix) && !plain && works[0] != "merge" && rng.below(2) == 0;
        for mut worker in workers {
            if !worker.works() {
                continue;
            }
            if suspends {
                worker.signal("STOP");
                suspended.push(worker);
            } else {
                alive += 1;
            }
        }
        if let Ok(set) = open(&folder) {
            assert!(read_all(&*set) == samples, "after kill {number} of seed {seed}");
            opened += 1;
        }
        if opened > 0 || number + 1 == kills {
            if plain {
                let done = Pack::new(&source).shard_samples(4).to(folder.join("x.tar"));
                assert!(done.is_ok() || opened > 0, "{done:?}");
            } else {
                (0..PARTS).for_each(|number| drop(pack_part(&source, &folder, (number, PARTS)).unwrap()));
            }
            let merged = Merge::new(folder.join("x.tar")).run().unwrap();
            // Each suspended process may have left an unfinished file.
            assert!(merged.orphans.len() <= suspended.len(), "{merged:?}");
            late += suspended.len();
            for mut worker in suspended.drain(..) {
                worker.signal("CONT");
                worker.child.wait().unwrap();
            }
            assert!(files(&folder) == expected, "{:?} after kill {number} of seed {seed}", files(&folder).keys());
            (root, opened, sets) = (tempfile::tempdir().unwrap(), 0, sets + 1);
        }
    }
    assert!(alive > 0, "no process was killed while it worked");
    println!(
        "{alive} processes were killed within {packing:?} and {merging:?}, {late} continued after the merge, \
         {sets} sets were completed"
    );
}

const KILLS: &str = "WARPFEED_TEST_KILLS";

#[test]
fn processes_that_are_killed_lose_and_repeat_nothing() {
    let kills = std::env::var(KILLS).map_or(10, |kills| kills.parse().expect("WARPFEED_TEST_KILLS is a number"));
    kill(kills, 1, false);
    kill(kills.div_ceil(2), 2, true);
}
