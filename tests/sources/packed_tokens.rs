//! Compares packed rows with a naive first-fit packer, and the rows of ranks and of resumed runs
//! with the rows of one uninterrupted run.

use std::fs;

use warpfeed::source::{PackedTokens, Packing, Source, TokenType, Value};
use warpfeed::{Dtype, HostBatch, LastBatch, Loader, Result, field};

/// Token that ends a document.
const END: u32 = 9;
/// Token that fills the rest of a row.
const PADDING: u32 = 77;

type Row = Vec<Vec<u32>>;

pub(crate) fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    }
}

fn naive_first_fit(file: &[u32], length: usize, window: usize, max_documents: usize) -> Vec<Row> {
    let documents: Vec<&[u32]> = file.split_inclusive(|token| *token == END).collect();
    let mut packed_rows = Vec::new();
    for window in documents.chunks(window) {
        let mut rows: Vec<Row> = Vec::new();
        for piece in window.iter().flat_map(|document| document.chunks(length)) {
            let used = |row: &Row| row.iter().map(Vec::len).sum::<usize>();
            match rows.iter_mut().find(|row| row.len() < max_documents && used(row) + piece.len() <= length) {
                Some(row) => row.push(piece.to_vec()),
                None => rows.push(vec![piece.to_vec()]),
            }
        }
        packed_rows.append(&mut rows);
    }
    packed_rows
}

fn corpus(folder: &std::path::Path, kind: TokenType, seed: u64) -> Vec<Vec<u32>> {
    let mut dice = random(seed);
    let files = 1 + dice(3);
    let longest = 1 + dice(40);
    let written = (0..files).map(|number| {
        let mut tokens = Vec::new();
        for _ in 0..dice(60) {
            tokens.extend((0..dice(longest)).map(|_| 100 + dice(900) as u32));
            tokens.push(END);
        }
        // The last document of a file need not end with `END`.
        tokens.extend((0..1 + dice(5)).map(|_| 100 + dice(900) as u32));
        let bytes = |token: &u32| match kind {
            TokenType::U16 => (*token as u16).to_le_bytes().to_vec(),
            _ => token.to_le_bytes().to_vec(),
        };
        fs::write(folder.join(format!("{number}.bin")), tokens.iter().flat_map(bytes).collect::<Vec<u8>>()).unwrap();
        tokens
    });
    written.collect()
}

fn arrays(row: &Row, length: usize, max_documents: usize) -> [Vec<i64>; 4] {
    let (mut tokens, mut documents, mut positions, mut ends) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (number, document) in row.iter().enumerate() {
        for (position, token) in document.iter().enumerate() {
            tokens.push(i64::from(*token));
            documents.push(number as i64);
            positions.push(position as i64);
        }
        ends.push(tokens.len() as i64);
    }
    for position in 0..length - tokens.len() {
        tokens.push(i64::from(PADDING));
        documents.push(-1);
        positions.push(position as i64);
    }
    ends.resize(max_documents + 1, length as i64);
    [tokens, documents, positions, ends]
}

fn numbers(batch: &HostBatch, name: &str) -> Vec<i64> {
    let field = batch.field(name).unwrap();
    match field.dtype() {
        Dtype::U16 => field.elements::<u16>().unwrap().iter().map(|token| i64::from(*token)).collect(),
        Dtype::I32 => field.elements::<i32>().unwrap().iter().map(|token| i64::from(*token)).collect(),
        _ => field.as_i64().unwrap().to_vec(),
    }
}

#[test]
fn rows_equal_naive_first_fit() -> Result<()> {
    for seed in 0..300 {
        let mut dice = random(seed + 1000);
        let kind = if dice(2) == 0 { TokenType::U16 } else { TokenType::U32 };
        let folder = tempfile::tempdir().unwrap();
        let files = corpus(folder.path(), kind, seed);
        let (length, window) = (1 + dice(50) as usize, 1 + dice(30) as usize);
        let limit = if dice(2) == 0 { 1 + dice(4) as usize } else { usize::MAX };
        let packing = Packing::new(length, END).window_documents(window).pad_token_id(PADDING).max_documents(limit);
        let source = PackedTokens::open_with(folder.path(), kind, packing, dice(2) == 0)?;
        let expected: Vec<Vec<Row>> = files.iter().map(|file| naive_first_fit(file, length, window, limit)).collect();
        let keyed_rows: Vec<(String, &Row)> = expected
            .iter()
            .enumerate()
            .flat_map(|(file, rows)| {
                rows.iter().enumerate().map(move |(row, documents)| (format!("{file}.bin/{row}"), documents))
            })
            .collect();
        assert_eq!(source.len(), keyed_rows.len(), "seed {seed}");
        let max_documents = keyed_rows.iter().map(|(_, row)| row.len()).max().unwrap();
        assert_eq!(source.max_documents(), max_documents);
        let used: usize = files.iter().map(Vec::len).sum();
        assert!((source.padding_fraction() - (1.0 - used as f64 / (keyed_rows.len() * length) as f64)).abs() < 1e-12);
        let mut scratch = Vec::new();
        for (index, (key, row)) in keyed_rows.iter().enumerate() {
            let sample = source.read(index, &mut scratch)?;
            assert_eq!(source.key(index, &mut Vec::new())?, sample.key());
            assert_eq!(sample.key().rsplit_once('-').unwrap().0, key);
            let Some(Value::Numbers(lengths)) = sample.value("lengths.npy") else { panic!("no lengths") };
            let lengths: Vec<usize> = lengths.iter::<u32>().unwrap().map(|length| length as usize).collect();
            assert_eq!(lengths, row.iter().map(Vec::len).collect::<Vec<_>>(), "seed {seed}, row {index}");
        }
        let dtype = [Dtype::U16, Dtype::I32, Dtype::I64][dice(3) as usize];
        let tokens = field::Packed::new(dtype, length, max_documents).vocab_size(1000);
        let loader = Loader::source(source).drop_field("image").drop_field("label").shuffle(seed).epochs(0);
        let mut batches = loader.batch_size(1 + dice(6) as usize).workers(2).field("tokens", tokens).host()?;
        for batch in batches.epoch(dice(3)) {
            let batch = batch?;
            let actual =
                ["tokens", "tokens.document", "tokens.position", "tokens.ends"].map(|name| numbers(&batch, name));
            let mut cumulative = vec![0];
            for (row_index, id) in batch.ids().enumerate() {
                let expected = arrays(keyed_rows[id as usize].1, length, max_documents);
                for (actual, expected) in actual.iter().zip(&expected) {
                    assert_eq!(actual[row_index * expected.len()..][..expected.len()], expected[..], "seed {seed}");
                }
                cumulative.extend(keyed_rows[id as usize].1.iter().scan(row_index * length, |end, document| {
                    *end += document.len();
                    Some(*end as i32)
                }));
                if cumulative.last() != Some(&(((row_index + 1) * length) as i32)) {
                    cumulative.push(((row_index + 1) * length) as i32);
                }
            }
            let longest = cumulative.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
            assert_eq!(batch.cu_seqlens("tokens"), Some((cumulative, longest)), "seed {seed}");
            assert_eq!(batch.cu_seqlens("other"), None);
        }
    }
    Ok(())
}

#[test]
fn ranks_and_resume_match_the_rows_of_a_single_run() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let mut dice = random(5);
    let tokens = (0..400).map(|_| if dice(4) == 0 { END } else { 100 + dice(900) as u32 });
    let bytes: Vec<u8> = tokens.flat_map(|token| (token as u16).to_le_bytes()).collect();
    fs::write(folder.path().join("a.bin"), bytes).unwrap();
    let open = |rank: usize, ranks: usize, window: usize| -> Result<Loader> {
        let packing = Packing::new(8, END).window_documents(window);
        let source = PackedTokens::open(folder.path(), TokenType::U16, packing)?;
        let max_documents = source.max_documents();
        let loader = Loader::source(source).drop_field("image").drop_field("label").shuffle(2).rank(rank, ranks);
        let loader = loader.last_batch(LastBatch::Drop).global_batch_size(4);
        Ok(loader.field("tokens", field::Packed::new(Dtype::I64, 8, max_documents)))
    };
    let rows = |loader: Loader| -> Result<Vec<Vec<i64>>> {
        loader.into_iter().map(|batch| Ok(numbers(&batch?, "tokens"))).collect()
    };
    let rows_of_one_run = rows(open(0, 1, 16)?)?;
    assert!(rows_of_one_run.len() > 4);
    let shares = [rows(open(0, 2, 16)?)?, rows(open(1, 2, 16)?)?];
    for (number, batch) in rows_of_one_run.iter().enumerate() {
        assert_eq!([&shares[0][number][..], &shares[1][number]].concat(), *batch, "batch {number}");
    }
    let mut batches = open(0, 1, 16)?.host()?;
    batches.epoch(0).take(2).for_each(drop);
    let state = batches.checkpoint();
    assert_eq!(rows(open(0, 1, 16)?.resume(state.clone()))?, rows_of_one_run[2..]);
    let e = open(0, 1, 3)?.resume(state.clone()).host().unwrap_err();
    assert!(e.cause().contains("the number of source samples differs"), "{e}");
    // Find other windows that give the same number of rows. A resume compares only some of the
    // keys, and could miss a few differences, so use only windows for which more than 20 keys
    // differ.
    let rows_of = |window| {
        let source =
            PackedTokens::open(folder.path(), TokenType::U16, Packing::new(8, END).window_documents(window)).unwrap();
        let keys: Vec<_> = (0..source.len()).map(|row| source.key(row, &mut Vec::new()).unwrap()).collect();
        keys
    };
    let first = rows_of(16);
    let others = (17..60).map(|window| (window, rows_of(window)));
    let same_len: Vec<_> = others.filter(|(_, keys)| keys.len() == first.len() && *keys != first).collect();
    assert!(!same_len.is_empty());
    let resume_fails = |window: usize| open(0, 1, window).unwrap().resume(state.clone()).host().is_err();
    let has_changed = |(_, keys): &&(_, Vec<_>)| keys.iter().zip(&first).filter(|(a, b)| a != b).count() > 20;
    let changed: Vec<_> = same_len.iter().filter(has_changed).collect();
    assert!(!changed.is_empty());
    changed.iter().for_each(|(window, _)| assert!(resume_fails(*window), "window {window}"));
    Ok(())
}

#[test]
fn errors_quote_bad_packings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.bin");
    fs::write(&path, [5_u16, END as u16, 6, 7].map(u16::to_le_bytes).concat()).unwrap();
    for (packing, text) in [
        (Packing::new(0, END), "length=0"),
        (Packing::new(8, END).window_documents(0), "window_documents=0"),
        (Packing::new(8, 70_000), "the end of a document is token 70000, but the tokens are u16"),
        (Packing::new(8, END).pad_token_id(1 << 16), "the padding is token 65536"),
    ] {
        let e = PackedTokens::open(&path, TokenType::U16, packing).unwrap_err();
        assert!(e.cause().contains(text), "{e}");
    }
    let open = || PackedTokens::open(&path, TokenType::U16, Packing::new(8, END)).unwrap();
    for (tokens, text) in [
        (field::Packed::new(Dtype::I64, 8, 1), "has 2 documents in a row: expected at most 1"),
        (field::Packed::new(Dtype::I64, 9, 2), "has 8 tokens: expected 9"),
        (field::Packed::new(Dtype::I64, 8, 2).vocab_size(7), "has the token 9"),
        (field::Packed::new(Dtype::I64, 8, 0), "0 documents per row of 8 tokens"),
    ] {
        let loader = Loader::source(open()).drop_field("image").drop_field("label").field("tokens", tokens);
        let e = loader.into_iter().next().unwrap().unwrap_err();
        assert!(e.to_string().contains(text), "{e}");
    }
    fs::write(&path, []).unwrap();
    let e = PackedTokens::open(&path, TokenType::U16, Packing::new(8, END)).unwrap_err();
    assert!(e.cause().contains("no tokens"), "{e}");
}
