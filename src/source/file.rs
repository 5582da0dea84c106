use std::fs::File;
use std::io::Read;

/// Room for the first file. A buffer grows to twice the largest file at most, so that one `read`
/// fetches a file and a second one sees its end.
pub(super) const FIRST_READ: usize = 64 << 10;

/// The largest file that is read. A larger one is refused before it fills the memory.
const MAX_FILE: usize = 1 << 31;

/// Reads `file` to its end, into `scratch` from byte `from` on. Returns where it ends there.
///
/// `scratch` keeps its length from file to file. So nothing is zeroed once it is as long as the
/// longest file. The size is not asked for: `File::read_to_end` makes two more system calls to
/// learn it.
pub(super) fn read_whole(file: &mut File, scratch: &mut Vec<u8>, from: usize) -> std::io::Result<usize> {
    let mut len = from;
    loop {
        if len == scratch.len() {
            if len - from >= MAX_FILE {
                return Err(std::io::Error::other(format!("file is larger than {MAX_FILE} bytes")));
            }
            scratch.resize((2 * len).max(FIRST_READ), 0);
        }
        match file.read(&mut scratch[len..]) {
            Ok(0) => return Ok(len),
            Ok(n) => len += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}
