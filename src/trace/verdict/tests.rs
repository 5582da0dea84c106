//! Tests each rule with fixed statistics, and the range of percentages with random statistics.

use super::*;
use crate::trace::{DecodedCacheStats, NetworkStats, ProcessStats, Straggler};

/// The statistics that `warpfeed_sources` defines are non-exhaustive, so this crate cannot use
/// struct expressions for them.
fn changed<T>(mut stats: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut stats);
    stats
}

fn stage(count: u64, seconds: f64, bytes: u64) -> StageStats {
    changed(StageStats::default(), |stats| {
        (stats.count, stats.seconds, stats.bytes) = (count, seconds, bytes);
        (stats.p50_seconds, stats.p99_seconds) = (seconds / count as f64, seconds / count as f64);
    })
}

/// Ten seconds of a loader with 4 workers, which are busy half of the time. The consumer waits 40%
/// of the time.
fn loader() -> Stats {
    Stats {
        workers: 4,
        cores: 4,
        prefetch: 2,
        slots: 4,
        seconds: 10.0,
        batches: 100,
        samples: 6400,
        prepared_samples: 6400,
        waited_seconds: 4.0,
        epochs: 1,
        read: stage(6400, 1.0, 1 << 30),
        decode: stage(6400, 14.0, 0),
        transform: stage(6400, 4.0, 0),
        write: stage(6400, 1.0, 1 << 30),
        wait: stage(100, 4.0, 0),
        step: stage(100, 6.0, 0),
        ..Stats::default()
    }
}

#[test]
fn decoding_on_the_device_is_named_and_advised() {
    let decode = Stats { device_decode: Some(stage(100, 9.0, 0)), images_sent_to_device: 6400, ..loader() }.verdict();
    assert_eq!(decode.bottleneck, Bottleneck::DeviceDecode);
    assert!(
        decode.text.starts_with(
            "device-decode-bound\n- decoding takes 90% of the device's time, 90.00 ms per batch\n- the step waited 40%"
        ),
        "{}",
        decode.text
    );
    let advice = "decode_on(DecodeOn::Auto)";
    let busy = stage(6400, 30.0, 0);
    let on_device = Stats { copy: Some(stage(100, 1.0, 1)), decode: busy.clone(), ..loader() };
    assert!(on_device.verdict().text.contains(advice), "{}", on_device.verdict().text);
    let on_host = Stats { decode: busy, ..loader() };
    assert!(!on_host.verdict().text.contains(advice), "batches in host memory have no device decoding");
    let already = Stats { images_sent_to_device: 1, ..on_device };
    assert!(!already.verdict().text.contains(advice));
}

#[test]
fn streams_that_are_always_busy_are_named() {
    let copy = Stats { copy: Some(stage(100, 9.2, 230_000_000_000)), ..loader() }.verdict();
    assert_eq!(copy.bottleneck, Bottleneck::Copy);
    assert!(
        copy.text
            .starts_with("copy-bound\n- the copy stream is busy 92% of the time, at 25.0 GB/s\n- the step waited 40%"),
        "{copy}"
    );
    let convert = Stats { convert: Some(stage(100, 8.5, 0)), copy: Some(stage(100, 5.0, 1)), ..loader() }.verdict();
    assert_eq!(convert.bottleneck, Bottleneck::Convert);
    // Copies are queued, so only the device's clock shows the wait.
    let device =
        Stats { waited_seconds: 0.1, stall: Some(stage(100, 5.0, 0)), copy: Some(stage(100, 9.0, 1)), ..loader() };
    assert_eq!(device.verdict().bottleneck, Bottleneck::Copy);
    assert_eq!((device.verdict().wait_fraction, device.verdict().max_speedup), (0.5, Some(2.0)));
}

/// A program that never synchronizes runs ahead until all slots on the device are in use.
#[test]
fn a_host_that_waits_for_its_busy_device_is_step_bound() {
    let stats = Stats { waited_seconds: 9.0, stall: Some(stage(96, 0.1, 0)), ..loader() };
    let verdict = stats.verdict();
    assert_eq!(verdict.bottleneck, Bottleneck::Step, "{verdict}");
    assert!(verdict.text.contains("the step waited 1% of the time\n- a step takes 99.0 ms"), "{verdict}");
    let untimed = Stats { stall: Some(stage(3, 0.1, 0)), ..stats };
    assert_ne!(untimed.verdict().bottleneck, Bottleneck::Step, "three timed batches are too few");
}

#[test]
fn a_loader_without_a_single_cause_is_unclear() {
    let verdict = loader().verdict();
    assert_eq!(verdict.bottleneck, Bottleneck::Unclear, "{verdict}");
    assert_eq!(Stats { batches: 3, ..loader() }.verdict().bottleneck, Bottleneck::Unclear);
    assert_eq!(Stats::default().verdict().bottleneck, Bottleneck::Unclear);
}

fn slow(sample: u64, seconds: f64, at_seconds: f64) -> Straggler {
    Straggler {
        sample,
        key: format!("key{sample}"),
        stage: "decode".into(),
        seconds,
        times: 1,
        total_seconds: seconds,
        at_seconds,
        bytes: 0,
    }
}

#[test]
fn samples_that_were_slow_at_the_same_moment_are_not_blamed() {
    let slowest = vec![slow(7, 2.5, 3.0), slow(8, 2.4, 3.01), slow(9, 2.4, 2.9)];
    let stats = Stats { slowest, decode: changed(loader().decode, |decode| decode.seconds = 24.0), ..loader() };
    let verdict = stats.verdict();
    assert_eq!(verdict.bottleneck, Bottleneck::Decode, "{verdict}");
    assert!(verdict.text.contains("3 samples were slow at the same moments on several workers"), "{verdict}");
    let slowest = vec![slow(7, 2.5, 3.0), slow(8, 2.4, 3.3), slow(9, 2.4, 2.7)];
    assert_eq!(Stats { slowest, ..stats }.verdict().bottleneck, Bottleneck::Straggler);
}

#[test]
fn a_slow_sample_is_named_unless_its_thread_had_no_core() {
    let slowest = vec![slow(7, 2.5, 3.0), slow(8, 1.0, 5.0), slow(9, 0.1, 6.0)];
    let stats = Stats { slowest, ..loader() };
    let verdict = stats.verdict();
    assert_eq!(verdict.bottleneck, Bottleneck::Straggler);
    let words = "limited by 2 slow samples\n- sample 7 (key7) takes 2500.0 ms, most of it in decode; a typical sample takes 3.13 ms,";
    assert!(verdict.text.starts_with(words), "{verdict}");
    let unread = Straggler { key: String::new(), ..stats.slowest[0].clone() };
    let unread = Stats { slowest: vec![unread], ..stats.clone() };
    assert!(unread.verdict().text.contains("- sample 7 takes 2500.0 ms"), "{}", unread.verdict());
    assert_eq!(Stats { delayed_seconds: 3.0, ..stats }.verdict().bottleneck, Bottleneck::Unclear);
}

/// The statistics were measured on a dataset in which 1% of the photographs have 7 to 24
/// megapixels. Sixteen workers prepare a batch in 1.4 ms, but a worker takes 100 ms for each of the
/// largest photographs.
#[test]
fn rare_large_samples_are_blamed_while_threads_wait_for_cores() {
    let large = |n: u64| Straggler { bytes: 9_000_000, ..slow(n, 0.06 + 0.01 * n as f64, 0.2 * n as f64) };
    let stats = Stats {
        workers: 16,
        cores: 16,
        seconds: 1.4,
        batches: 160,
        samples: 40_957,
        prepared_samples: 40_957,
        bytes_read: 40_957 * 110_000,
        waited_seconds: 1.15,
        delayed_seconds: 1.2,
        read: stage(40_957, 0.1, 1 << 32),
        decode: changed(stage(40_957, 4.5, 0), |decode| decode.p50_seconds = 60e-6),
        transform: stage(40_957, 0.1, 0),
        write: stage(40_957, 0.1, 0),
        wait: stage(160, 1.15, 0),
        straggler_wait: stage(19, 0.98, 0),
        slowest: (1..=8).map(large).collect(),
        ..loader()
    };
    let verdict = stats.verdict();
    assert_eq!(verdict.bottleneck, Bottleneck::Straggler, "{verdict}");
    let words = [
        "limited by rare slow samples\n- sample 8 (key8) of 9.00 MB takes 140.0 ms, most of it in decode; \
         a typical sample has 0.11 MB and takes 0.07 ms",
        "\n- during 85% of the wait, all batches prefetched after the missing one were complete",
        "\n- shrink large images with `warpfeed pack --max-side`, drop them (`stats.slowest`), or raise prefetch above 2",
    ];
    assert!(words.iter().all(|words| verdict.text.contains(words)), "{verdict}");
    // If the samples have a typical size, the threads may have been slow instead.
    let usual = |s: &Straggler| Straggler { bytes: 110_000, ..s.clone() };
    let even = Stats { slowest: stats.slowest.iter().map(usual).collect(), ..stats.clone() };
    assert_ne!(even.verdict().bottleneck, Bottleneck::Straggler, "{}", even.verdict());
    let running = Stats { delayed_seconds: 0.1, slowest: even.slowest.clone(), ..stats.clone() };
    assert_eq!(running.verdict().bottleneck, Bottleneck::Straggler, "{}", running.verdict());
    // Late batches without a slow sample have a different cause.
    assert_ne!(Stats { slowest: vec![], ..stats.clone() }.verdict().bottleneck, Bottleneck::Straggler);
    // If few slow samples are listed, the total wait is known only from the late batches.
    let few = |mut s: Stats| {
        s.slowest.truncate(2);
        s
    };
    assert_eq!(few(stats.clone()).verdict().bottleneck, Bottleneck::Straggler);
    assert_ne!(
        few(Stats { straggler_wait: StageStats::default(), ..stats }).verdict().bottleneck,
        Bottleneck::Straggler
    );
}

#[test]
fn each_rule_gives_its_verdict() {
    let cases = [
        (
            Bottleneck::Step,
            Stats { waited_seconds: 0.4, ..loader() },
            "a step takes 60.0 ms: 640 samples/s\n- 2.0 of 4 workers are busy",
        ),
        (Bottleneck::Read, Stats { read: stage(6400, 20.0, 1 << 30), ..loader() }, "read-bound\n- 3.9 of 4 workers"),
        (
            Bottleneck::Read,
            Stats { readahead: Some(stage(6400, 80.0, 1 << 30)), ..loader() },
            "8.0 reads are in flight on average",
        ),
        (Bottleneck::Decode, Stats { decode: stage(6400, 30.0, 0), ..loader() }, "decode-bound\n- 3.6 of 4 workers"),
        (Bottleneck::Transform, Stats { transform: stage(6400, 20.0, 0), ..loader() }, "transform-bound\n- 3.6 of 4"),
        (
            Bottleneck::Memory,
            Stats { write: stage(6400, 20.0, 1 << 34), ..loader() },
            "memory-bound\n- 3.9 of 4 workers",
        ),
        (
            Bottleneck::Decode,
            Stats { decode: stage(6400, 120.0, 0), workers: 15, cores: 16, ..loader() },
            "decode-bound\n- 12.6 of 15 workers",
        ),
        (
            Bottleneck::Workers,
            Stats { decode: stage(6400, 30.0, 0), cores: 16, ..loader() },
            "workers(16), one per core, would be at most 1.7 times as fast",
        ),
        (
            Bottleneck::EpochStart,
            Stats { epochs: 10, start_wait_seconds: 3.0, ..loader() },
            "75% of the wait is for the first batches of 10 epochs (300.0 ms each, 10.0 batches per epoch)",
        ),
        (Bottleneck::Slots, Stats { slot_wait: stage(100, 3.0, 0), ..loader() }, "prefetch(3) instead of 2"),
    ];
    for (limit, stats, words) in cases {
        let verdict = stats.verdict();
        assert_eq!(verdict.bottleneck, limit, "{verdict}");
        assert!(verdict.text.contains(words), "{words:?} is not in {:?}", verdict.text);
    }
}

#[test]
fn running_and_waiting_time_add_up() {
    let running = |cpu_seconds, delayed_seconds| {
        let process = ProcessStats { cpu_seconds, ..ProcessStats::default() };
        let verdict = Stats { decode: stage(6400, 30.0, 0), delayed_seconds, process, ..loader() }.verdict();
        assert_eq!(verdict.bottleneck, Bottleneck::Decode);
        verdict.text
    };
    // Workers are busy for 36 s and wait for a core for 18 s of that time.
    for cpu_seconds in [18.0, 25.0] {
        let text = running(cpu_seconds, 18.0);
        let words = "workers were running 50% of their busy time; for the rest they were waiting for a free core";
        assert!(text.contains(words), "{text}");
    }
    let text = running(9.0, 18.0);
    let words = "workers were running 25% of their busy time, waiting for a free core 50%, and blocked for the rest";
    assert!(text.contains(words), "{text}");
    assert!(running(9.0, 100.0).contains("running 0% of their busy time; for the rest they were waiting"));
    assert!(running(9.0, 0.0).contains("running 25% of their busy time; for the rest they were blocked"));
    assert!(!running(36.0, 0.0).contains("busy time"), "no line about waiting");
}

#[test]
fn a_larger_cache_is_advised_only_if_the_cache_is_full() {
    let advised = |images: u64, bytes: u64, epochs: u64| {
        let cache = changed(DecodedCacheStats::default(), |cache| {
            (cache.hits, cache.misses, cache.images, cache.bytes, cache.capacity_bytes) =
                (1600, 4800, images, bytes, 1000);
        });
        let stats = Stats { decode: stage(6400, 30.0, 0), decoded_cache: Some(cache), epochs, ..loader() };
        stats.verdict().text.contains("had 25% of the images: a larger cache_decoded would help")
    };
    assert!(advised(10, 950, 2));
    assert!(!advised(10, 500, 2), "there is space for further images");
    assert!(!advised(10, 950, 1), "no image can be in the cache in the first epoch");
    assert!(!advised(0, 0, 2));
}

#[test]
fn packing_is_advised_only_for_plain_jpegs() {
    let busy = Stats { decode: stage(6400, 30.0, 0), ..loader() };
    let plain = Stats { jpegs_without_restart_markers: 6400, ..busy.clone() }.verdict();
    assert_eq!(plain.bottleneck, Bottleneck::Decode);
    let words = "100% of the samples are JPEGs without restart markers: `warpfeed pack`";
    assert!(plain.text.contains(words) && plain.text.contains("about 1.7 times as fast"), "{plain}");
    let packed = busy.verdict();
    assert_eq!(packed.bottleneck, Bottleneck::Decode);
    assert!(!packed.text.contains("pack") && packed.text.contains("1.7 times as fast"), "{packed}");
}

#[test]
fn the_step_bounds_the_possible_speed_up() {
    let verdict = loader().verdict();
    assert!((verdict.max_speedup.unwrap() - 1.0 / 0.6).abs() < 1e-9);
    assert_eq!(
        Stats { waited_seconds: 9.99, ..loader() }.verdict().max_speedup,
        None,
        "no bound, because the step takes no time"
    );
}

#[test]
fn no_advice_promises_more_than_the_loop_can_gain() {
    let many = Stats { workers: 1, cores: 64, decode: stage(6400, 7.5, 0), ..loader() };
    for waited_seconds in [0.6, 1.0, 4.0, 7.0] {
        let stats = Stats {
            waited_seconds,
            transform: stage(6400, 1.0, 0),
            jpegs_without_restart_markers: 6400,
            ..many.clone()
        };
        for cores in [1, 64] {
            let verdict = Stats { cores, ..stats.clone() }.verdict();
            let max_speedup = verdict.max_speedup.unwrap();
            let promised = verdict.text.split(" times as ").next().unwrap().rsplit(' ').next().unwrap();
            let promised: f64 = promised.parse().unwrap_or_else(|_| panic!("{verdict}"));
            assert!(promised <= max_speedup + 0.05, "{promised} of {max_speedup}: {verdict}");
        }
    }
    let crowded = Stats { delayed_seconds: 4.0, ..many };
    assert_eq!(crowded.verdict().bottleneck, Bottleneck::Decode, "{}", crowded.verdict());
}

#[test]
fn slow_starts_of_epochs_are_named_next_to_another_limit() {
    let busy = Stats { decode: stage(6400, 30.0, 0), epochs: 10, start_wait_seconds: 1.6, ..loader() };
    let verdict = busy.verdict();
    assert_eq!(verdict.bottleneck, Bottleneck::Decode);
    let words =
        "40% of the wait is for the first batches of 10 epochs (160.0 ms each, 10.0 batches per epoch): `.repeat(n)`";
    assert!(verdict.text.contains(words), "{verdict}");
    assert!(!Stats { start_wait_seconds: 0.4, ..busy.clone() }.verdict().text.contains("repeat"));
    assert!(!Stats { epochs: 1, ..busy }.verdict().text.contains("repeat"), "one epoch has one start");
}

#[test]
fn every_share_is_from_0_to_1() {
    let mut state = 7_u64;
    let mut random = |max: f64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        // The cube makes small values more frequent. The range includes impossible values.
        max * ((state >> 33) as f64 / (1_u64 << 31) as f64).powi(3)
    };
    let percents = |text: &str| -> Vec<f64> {
        let numbers = text.rsplit('%').skip(1).map(|before| before.rsplit([' ', '(']).next().unwrap().parse::<f64>());
        numbers.map(Result::unwrap).collect()
    };
    let (mut limits, mut both) = (std::collections::HashSet::new(), 0);
    for _ in 0..20_000 {
        let mut some = |seconds| Some(stage(100, random(seconds), 1 << 30));
        let (copy, convert, device_decode, ahead) = (some(15.0), some(15.0), some(15.0), some(200.0));
        let stall = some(12.0);
        let stats = Stats {
            read: stage(6400, random(30.0), 1 << 30),
            decode: stage(6400, random(60.0), 0),
            transform: stage(6400, random(30.0), 0),
            write: stage(6400, random(30.0), 1 << 30),
            slot_wait: stage(100, random(20.0), 0),
            worker_seconds: 40.0,
            waited_seconds: random(12.0),
            start_wait_seconds: random(12.0),
            epochs: random(20.0) as u64,
            delayed_seconds: random(80.0),
            jpegs_without_restart_markers: random(12_000.0) as u64,
            cores: 1 + random(16.0) as usize,
            process: ProcessStats {
                cpu_seconds: random(80.0),
                disk_read_bytes: Some(1 << 33),
                ..ProcessStats::default()
            },
            stall: stall.filter(|_| random(1.0) > 0.3),
            copy: copy.filter(|_| random(1.0) > 0.3),
            convert: convert.filter(|_| random(1.0) > 0.3),
            device_decode: device_decode.filter(|_| random(1.0) > 0.3),
            readahead: ahead.filter(|_| random(1.0) > 0.3),
            ..loader()
        };
        let verdict = stats.verdict();
        limits.insert(verdict.bottleneck);
        for text in [&verdict.text, &stats.to_string()] {
            for percent in percents(text) {
                assert!((0.0..=100.0).contains(&percent), "{percent} in {text}");
            }
        }
        if let Some((_, times)) = verdict.text.split_once("workers were running ") {
            let sum: f64 = percents(times.lines().next().unwrap()).iter().sum();
            assert!(sum <= 100.0, "{verdict}");
            both += 1;
        }
    }
    assert!(limits.len() >= 8 && both > 1000, "{limits:?}, {both}");
}

/// Ten seconds of a loader that waits for its store.
fn remote(network: NetworkStats) -> Stats {
    let network = Some(changed(network, |network| network.responses = stage(9_000, 1_000.0, 1 << 30)));
    Stats { readahead: Some(stage(6400, 60.0, 1 << 30)), network, ..loader() }
}

#[test]
fn waiting_for_a_store_is_network_bound() {
    let usual = changed(NetworkStats::default(), |usual| {
        (usual.requests, usual.received_bytes, usual.used_bytes) = (9_000, 1_000_000_000, 990_000_000);
        usual.time_to_first_byte = stage(9_000, 90.0, 0);
    });
    let but = |change: fn(&mut NetworkStats)| changed(usual.clone(), change);
    let verdict = remote(usual.clone()).verdict();
    assert_eq!(verdict.bottleneck, Bottleneck::Network);
    let text = "network-bound\n- 2.0 of 4 workers are busy\n- the step waited 40% of the time\n\
                - 100.0 MB/s in 900 requests/s, 100.0 in flight on average; first byte after 10 ms (p99 10 ms)\n\
                - 9000 requests: 0 retried, 0 hedged, 0 refused\n\
                - 99.0% of the received bytes were read\n\
                - a request has 111 KB on average: `shuffle_window` combines neighbors into requests of up to 4 MiB\n\
                - a local disk cache would serve later epochs";
    assert_eq!(verdict.text, text);
    let advised = |network: NetworkStats, advice: &str| remote(network).verdict().text.contains(advice);
    let large = but(|network| network.received_bytes = 20_000_000_000);
    assert!(!advised(large, "shuffle_window"));
    let (refused, region) =
        ("the server refused 5% of the requests: more prefixes", "a machine in the region of the store");
    assert!(advised(but(|network| network.refusals = 450), refused));
    assert!(!advised(usual.clone(), "the server refused") && !advised(usual.clone(), region));
    assert!(advised(but(|network| network.time_to_first_byte = stage(9_000, 900.0, 0)), region));
    let cached = but(|network| (network.has_cache, network.disk_bytes) = (true, 330_000_000));
    assert!(advised(cached.clone(), "a larger cache would serve more than 25% of the bytes"));
    assert!(advised(cached, "25.0% of the samples' bytes came from the cache (memory 0.0%, folder 25.0%)"));
    assert!(!advised(usual.clone(), "few requests"));
    let mut few = remote(usual.clone());
    few.network.as_mut().unwrap().responses = stage(9_000, 50.0, 1 << 30);
    assert!(few.verdict().text.contains("few requests are in flight: prefetch(4) or a higher memory_limit"));
    // If read-ahead is disabled, the workers read the samples themselves.
    let reads = Stats { readahead: None, read: stage(6400, 30.0, 1 << 30), ..remote(usual.clone()) };
    assert_eq!(reads.verdict().bottleneck, Bottleneck::Network);
    let decodes = Stats { decode: stage(6400, 36.0, 0), readahead: None, ..remote(usual) };
    assert_eq!(decodes.verdict().bottleneck, Bottleneck::Decode);
    assert_eq!(remote(NetworkStats::default()).verdict().bottleneck, Bottleneck::Read);
}

#[test]
fn the_table_has_slot_waits_and_process_counters() {
    let process = ProcessStats {
        disk_read_bytes: Some(3 << 20),
        anonymous_bytes: Some(5 << 19),
        major_faults: 7,
        ..ProcessStats::default()
    };
    let stats = Stats { slot_wait: stage(100, 2.5, 0), process, damaged_images: 2, ..loader() };
    let table = stats.to_string();
    let slot = table.lines().find(|line| line.starts_with("  slot wait ")).expect("a row for slots");
    let cells: Vec<&str> = slot.split_whitespace().collect();
    assert_eq!(cells[2..6], ["100", "25000.0", "25000.0", "25000.0"], "{table}");
    assert!(slot.ends_with(" 25.0% the coordinator's time, waiting for a free slot"), "{table}");
    assert!(table.contains("7 major and 0 minor page faults, 3.0 MiB from the disk, 2.5 MiB of anonymous memory"));
    assert!(table.ends_with("\n  2 damaged images were decoded"), "{table}");
    let table = Stats { slot_wait: stage(0, 0.0, 0), process: ProcessStats::default(), ..loader() }.to_string();
    assert!(!table.contains("MiB") && !table.lines().any(|line| line.starts_with("  slot ")), "{table}");
}
