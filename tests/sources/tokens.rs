//! Tests that windows of token files equal slices of the arrays in the files, for both token types,
//! any sample order and several ranks, and that files of the wrong type are rejected.

use std::fs;
use std::path::Path;

use crate::support::{BeforeRead, check_resume};
use warpfeed::source::{Source, TokenFile, TokenType, Value};
use warpfeed::{Dtype, ErrorKind, HostBatch, LastBatch, Loader, OnError, Result, field};

/// Token that ends a document.
const END: u32 = 7;

/// Returns the tokens of file `number`. Its documents end at irregular positions.
fn text(number: u32, count: u32) -> Vec<u32> {
    let token =
        |i: u32| if (i * i + number).is_multiple_of(23) { END } else { (i.wrapping_mul(2_654_435_761) >> 17) | 8 };
    (0..count).map(token).collect()
}

fn stored(tokens: &[u32], kind: TokenType) -> Vec<u8> {
    let bytes = |token: &u32| match kind {
        TokenType::U16 => (*token as u16).to_le_bytes().to_vec(),
        _ => token.to_le_bytes().to_vec(),
    };
    tokens.iter().flat_map(bytes).collect()
}

fn npy(tokens: &[u32], kind: TokenType) -> Vec<u8> {
    let descr = if kind == TokenType::U16 { "<u2" } else { "<u4" };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({},), }}", tokens.len());
    header.push_str(&" ".repeat(117 - header.len()));
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    file.extend(header.as_bytes());
    file.extend(stored(tokens, kind));
    file
}

fn llm_c(tokens: &[u32], kind: TokenType) -> Vec<u8> {
    let magic = if kind == TokenType::U16 { 20_240_520 } else { 20_240_801 };
    let mut file: Vec<u8> = [magic, 1, tokens.len() as u32].iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    file.resize(1024, 0);
    file.extend(stored(tokens, kind));
    file
}

/// Writes token files in three formats. One of them is too short for a window of 40 tokens.
fn corpus(folder: &Path, kind: TokenType) -> Vec<Vec<u32>> {
    let files: Vec<_> = [500, 39, 333, 40].iter().zip(0..).map(|(count, n)| text(n, *count)).collect();
    fs::write(folder.join("a.bin"), stored(&files[0], kind)).unwrap();
    fs::write(folder.join("b.bin"), stored(&files[1], kind)).unwrap();
    fs::write(folder.join("c.npy"), npy(&files[2], kind)).unwrap();
    fs::write(folder.join("d.bin"), llm_c(&files[3], kind)).unwrap();
    fs::write(folder.join("notes.md"), "no tokens").unwrap();
    files
}

fn windows(files: &[Vec<u32>], length: usize, stride: usize) -> Vec<Vec<u32>> {
    files.iter().flat_map(|file| file.windows(length).step_by(stride).map(<[u32]>::to_vec)).collect()
}

fn packed(window: &[u32]) -> (Vec<i32>, Vec<i32>) {
    let (mut documents, mut positions) = (Vec::new(), Vec::new());
    for end in 0..window.len() {
        documents.push(window[..end].iter().filter(|token| **token == END).count() as i32);
        let begin = window[..end].iter().rposition(|token| *token == END).map_or(0, |end| end + 1);
        positions.push((end - begin) as i32);
    }
    (documents, positions)
}

fn numbers(batch: &HostBatch, name: &str) -> Vec<i64> {
    let field = batch.field(name).unwrap();
    match field.dtype() {
        Dtype::U16 => field.bytes().as_chunks().0.iter().map(|b| u16::from_ne_bytes(*b).into()).collect(),
        Dtype::I32 => field.bytes().as_chunks().0.iter().map(|b| i32::from_ne_bytes(*b).into()).collect(),
        _ => field.bytes().as_chunks().0.iter().map(|b| i64::from_ne_bytes(*b)).collect(),
    }
}

fn loader(source: TokenFile) -> Loader {
    Loader::source(source).drop_field("image").drop_field("label").batch_size(4)
}

#[test]
fn windows_equal_slices_of_the_files() {
    for kind in [TokenType::U16, TokenType::U32] {
        let folder = tempfile::tempdir().unwrap();
        let files = corpus(folder.path(), kind);
        for (length, stride) in [(40, 40), (41, 40), (40, 7), (40, 60), (1, 1), (500, 1)] {
            let expected = windows(&files, length, stride);
            for mapped in [true, false] {
                let source = TokenFile::open_with(folder.path(), kind, (length, stride), mapped).unwrap();
                assert_eq!(source.len(), expected.len(), "{length} every {stride}");
                let (mut scratch, mut keys) = (Vec::new(), std::collections::HashSet::new());
                for (index, expected) in expected.iter().enumerate() {
                    let sample = source.read(index, &mut scratch).unwrap();
                    let Some(Value::Numbers(tokens)) = sample.value("tokens.npy") else { panic!("no tokens") };
                    let actual: Vec<u32> = match kind {
                        TokenType::U16 => tokens.iter::<u16>().unwrap().map(u32::from).collect(),
                        _ => tokens.iter::<u32>().unwrap().collect(),
                    };
                    assert_eq!(&actual, expected, "window {index} of {length} every {stride}");
                    let key = sample.key().to_owned();
                    assert_eq!(source.key(index, &mut Vec::new()).unwrap(), key);
                    assert!(keys.insert(key));
                }
            }
        }
        assert_eq!(TokenFile::open(folder.path().join("d.bin"), kind, 40, 1).unwrap().len(), 1);
    }
}

#[test]
fn batches_have_tokens_and_documents_in_any_order() -> Result<()> {
    for kind in [TokenType::U16, TokenType::U32] {
        let folder = tempfile::tempdir().unwrap();
        let expected = windows(&corpus(folder.path(), kind), 41, 40);
        for dtype in [Dtype::U16, Dtype::I32, Dtype::I64] {
            for workers in [1, 3] {
                let source = TokenFile::open(folder.path(), kind, 41, 40)?;
                let loader = loader(source).shuffle(5).workers(workers).last_batch(LastBatch::Pad);
                let mut batches = loader
                    .field("tokens", field::Tokens::new(dtype, 41).eos_token_id(END).vocab_size(1 << 15))
                    .host()?;
                let mut seen = Vec::new();
                for batch in batches.epoch(0) {
                    let batch = batch?;
                    let parts = ["tokens", "tokens.document", "tokens.position"].map(|name| numbers(&batch, name));
                    for (place, id) in batch.ids().enumerate() {
                        let window = &expected[id as usize];
                        let (documents, positions) = packed(window);
                        let row_of = |part: &[i64]| part[41 * place..][..41].to_vec();
                        assert_eq!(row_of(&parts[0]), window.iter().map(|t| i64::from(*t)).collect::<Vec<_>>());
                        assert_eq!(row_of(&parts[1]), documents.into_iter().map(i64::from).collect::<Vec<_>>());
                        assert_eq!(row_of(&parts[2]), positions.into_iter().map(i64::from).collect::<Vec<_>>());
                    }
                    seen.extend(batch.ids().zip(batch.valid()).filter(|(_, valid)| *valid).map(|(id, _)| id));
                }
                seen.sort_unstable();
                assert_eq!(seen, (0..expected.len() as u64).collect::<Vec<_>>());
            }
        }
    }
    Ok(())
}

#[test]
fn ranks_and_resume_match_a_single_run() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    corpus(folder.path(), TokenType::U16);
    let open = |rank: usize, ranks: usize| -> Result<_> {
        let source = TokenFile::open(folder.path(), TokenType::U16, 20, 10)?;
        let loader = loader(source).shuffle(2).rank(rank, ranks).last_batch(LastBatch::Drop).global_batch_size(8);
        Ok(loader.field("tokens", field::Tokens::new(Dtype::I64, 20)))
    };
    let windows_of = |loader: Loader| -> Result<Vec<Vec<i64>>> {
        loader.into_iter().map(|batch| Ok(numbers(&batch?, "tokens"))).collect()
    };
    let windows_of_one_run = windows_of(open(0, 1)?)?;
    let shares = [windows_of(open(0, 2)?)?, windows_of(open(1, 2)?)?];
    for (number, batch) in windows_of_one_run.iter().enumerate() {
        let mut joined: Vec<_> = shares.iter().flat_map(|share| share[number].chunks(20)).collect();
        let mut sorted: Vec<_> = batch.chunks(20).collect();
        joined.sort_unstable();
        sorted.sort_unstable();
        assert_eq!(joined, sorted, "batch {number}");
    }
    check_resume(|| open(0, 1).unwrap(), |batch| numbers(batch, "tokens"));
    Ok(())
}

/// A different stride and a different length both result in eleven windows, so the number of
/// windows does not reveal the change.
#[test]
fn resuming_with_different_windows_fails() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.bin");
    fs::write(&path, stored(&text(0, 1030), TokenType::U16)).unwrap();
    let open = |length: usize, stride: usize| -> Result<_> {
        let source = TokenFile::open(&path, TokenType::U16, length, stride)?;
        assert_eq!(source.len(), 11);
        Ok(loader(source).shuffle(2).field("tokens", field::Tokens::new(Dtype::I64, length)))
    };
    let mut batches = open(20, 100)?.host()?;
    batches.epoch(0).take(1).for_each(drop);
    let state = batches.checkpoint();
    assert!(open(20, 100)?.resume(state.clone()).host().is_ok());
    for (length, stride) in [(20, 99), (21, 100)] {
        let e = open(length, stride)?.resume(state.clone()).host().unwrap_err();
        assert!(e.cause().contains("the dataset (key of sample"), "{e}");
    }
    Ok(())
}

#[test]
fn wrong_file_types_and_damaged_files_fail() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.bin");
    let tokens = text(0, 100);
    let refused = |content: &[u8], kind: TokenType| {
        fs::write(&path, content).unwrap();
        let e = TokenFile::open(&path, kind, 10, 10).unwrap_err();
        assert!(e.to_string().contains("x.bin"), "{e}");
        e.cause().to_owned()
    };
    let wide = stored(&tokens, TokenType::U32);
    assert!(
        refused(&wide, TokenType::U16)
            .contains("every other one of the first 200 tokens is below 64, which indicates u32")
    );
    // Only u32 files can contain the tokens of a vocabulary with more than 65,536 tokens.
    let large: Vec<u32> = tokens.iter().map(|token| token * 5 % 152_000).collect();
    assert!(large.iter().any(|&token| token > 65_536));
    assert!(refused(&stored(&large, TokenType::U32), TokenType::U16).contains("which indicates u32"));
    let bytes: Vec<u32> = tokens.iter().map(|token| token % 256).collect();
    assert!(refused(&stored(&bytes, TokenType::U32), TokenType::U16).contains("which indicates u32"));
    let narrow = stored(&tokens, TokenType::U16);
    assert!(refused(&narrow, TokenType::U32).contains("tokens are 16777216 or more, which indicates u16"));
    for (place, word, shown) in [(4, 2_i32, "version=2 and tokens=100"), (8, -1, "version=1 and tokens=-1")] {
        let mut headed = llm_c(&tokens, TokenType::U16);
        headed[place..place + 4].copy_from_slice(&word.to_le_bytes());
        assert!(refused(&headed, TokenType::U16).contains(shown));
    }
    assert!(refused(&wide[..399], TokenType::U32).contains("399 bytes: expected a multiple of the token size (u32)"));
    assert!(refused(&npy(&tokens, TokenType::U32), TokenType::U16).contains("was opened as u16"));
    let mut cut = npy(&tokens, TokenType::U16);
    cut.truncate(300);
    assert!(
        refused(&cut, TokenType::U16)
            .contains("claims 100 tokens of 2 bytes starting at byte 128, but the file has 300")
    );
    let headed = llm_c(&tokens, TokenType::U16);
    assert!(refused(&headed, TokenType::U32).contains("the header declares u16"));
    assert!(refused(&headed[..1100], TokenType::U16).contains("claims 100 tokens of 2 bytes starting at byte 1024"));
    assert!(
        refused(&stored(&tokens[..9], TokenType::U16), TokenType::U16)
            .contains("no file is long enough for a window of 10 tokens of type u16")
    );
    for header in ["(100, 1)", "()"] {
        let text = String::from_utf8_lossy(&npy(&tokens, TokenType::U16)[10..128]).replace("(100,)", header);
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((text.len() as u16).to_le_bytes());
        file.extend(text.as_bytes());
        file.extend(stored(&tokens, TokenType::U16));
        assert!(refused(&file, TokenType::U16).contains("expected an array with one axis"));
    }
    for (length, stride) in [(0, 1), (1, 0), (1 << 40, 1)] {
        let e = TokenFile::open(&path, TokenType::U16, length, stride).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Config, "{e}");
    }
    let empty = tempfile::tempdir().unwrap();
    let e = TokenFile::open(empty.path(), TokenType::U16, 1, 1).unwrap_err();
    assert!(e.cause().contains("the folder contains no token files"), "{e}");
}

#[test]
fn out_of_range_token_error_names_the_sample() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.bin");
    let mut tokens = text(0, 100);
    tokens[57] = 3_000_000_000;
    fs::write(&path, stored(&tokens, TokenType::U32)).unwrap();
    let failed = |kind: field::Tokens| {
        let source = TokenFile::open(&path, TokenType::U32, 10, 10).unwrap();
        loader(source).field("tokens", kind).into_iter().find_map(Result::err).unwrap().to_string()
    };
    let large = failed(field::Tokens::new(Dtype::I32, 10));
    assert!(
        large.contains("sample 5 (x.bin/50..60)")
            && large.contains("has the token 3000000000 at index 7, which int32 cannot"),
        "{large}"
    );
    let unknown = failed(field::Tokens::new(Dtype::I64, 10).vocab_size(50_257));
    assert!(unknown.contains("at index 7; the vocabulary has 50257 tokens"), "{unknown}");
    assert!(failed(field::Tokens::new(Dtype::I64, 11)).contains("has 10 tokens: expected 11"));
    for (kind, text) in [
        (field::Tokens::new(Dtype::F32, 10), "tokens cannot have the type float32: expected u16, i32 or i64"),
        (field::Tokens::new(Dtype::I64, 0), "windows of 0 tokens: expected 1 to 2147483647 tokens"),
        (field::Tokens::new(Dtype::I64, 1 << 31), "windows of 2147483648 tokens: expected 1 to 2147483647 tokens"),
        (
            field::Tokens::new(Dtype::I64, 10).eos_token_id(5).vocab_size(5),
            "is token 5, but the vocabulary has 5 tokens",
        ),
    ] {
        let e = failed(kind);
        assert!(e.contains(text), "{e}");
    }
    fs::write(&path, stored(&text(0, 100), TokenType::U16)).unwrap();
    let source = TokenFile::open(&path, TokenType::U16, 10, 10).unwrap();
    let field = field::Tokens::new(Dtype::I64, 10).eos_token_id(128_001);
    let e = loader(source).field("tokens", field).into_iter().find_map(Result::err).unwrap();
    assert!(e.cause().contains("has 16-bit tokens, which cannot hold the end token 128001"), "{e}");
}

#[test]
fn copied_windows_equal_windows_read_one_by_one() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let tokens: Vec<u32> = (0..9000_u32).map(|i| i.wrapping_mul(2_654_435_761) >> 20).collect();
    fs::write(folder.path().join("a.bin"), stored(&tokens[..6000], TokenType::U16)).unwrap();
    fs::write(folder.path().join("b.npy"), npy(&tokens[6000..], TokenType::U16)).unwrap();
    for (length, stride, vocabulary) in [(64, 64, 4096), (7, 3, 4096), (1000, 900, 4096), (16, 16, 4090)] {
        let open = || TokenFile::open(folder.path(), TokenType::U16, length, stride).unwrap();
        for index in 0..open().len() {
            let (source, mut key, mut scratch) = (open(), String::new(), Vec::new());
            let stored = source.stored(index, &mut key).expect("the files are mapped");
            let sample = source.read(index, &mut scratch)?;
            assert_eq!((sample.value("tokens.npy"), sample.key()), (Some(Value::Numbers(stored)), &*key));
            if index == 50 {
                break;
            }
        }
        for (batch, dtype, end) in [(1, Dtype::U16, None), (50, Dtype::I64, None), (300, Dtype::I32, Some(END))] {
            let batches = |loader: Loader| -> Result<_> {
                let kind = field::Tokens::new(dtype, length).vocab_size(vocabulary);
                let kind = end.map_or_else(|| kind.clone(), |end| kind.clone().eos_token_id(end));
                let loader = loader.drop_field("image").drop_field("label").batch_size(batch).shuffle(3).workers(2);
                let mut batches =
                    loader.epochs(0).on_error(OnError::Skip { max_skipped: u64::MAX }).field("tokens", kind).host()?;
                let mut results = Vec::new();
                for batch in batches.epoch(0) {
                    let batch = match batch {
                        Ok(batch) => batch,
                        Err(e) => {
                            results.push((Vec::new(), vec![e.to_string()], Vec::new()));
                            break;
                        }
                    };
                    let bytes = batch
                        .fields()
                        .flat_map(|field| batch.field(&field.name).unwrap().bytes().to_vec())
                        .collect::<Vec<u8>>();
                    let keys = batch.sample_keys().map(str::to_owned).collect::<Vec<_>>();
                    results.push((bytes, keys, batch.ids().collect()));
                }
                let skipped: Vec<_> =
                    batches.sample_errors().iter().map(|e| format!("{} {}", e.batch, e.error)).collect();
                let stats = batches.stats();
                let counts =
                    (stats.prepared_samples, stats.read.count, stats.read.bytes, stats.write.count, stats.write.bytes);
                // After an error, the number of prepared samples depends on timing.
                let ended_early = results.last().is_some_and(|batch| batch.2.is_empty());
                Ok((results, skipped, (!ended_early).then_some(counts)))
            };
            let (copied, read) =
                (batches(Loader::source(open()))?, batches(Loader::source(BeforeRead(open(), |_| Ok(()))))?);
            assert_eq!((&copied.1, copied.2), (&read.1, read.2));
            assert!(copied == read, "{length} every {stride}, batches of {batch}");
        }
    }
    Ok(())
}
