//! A stack machine that interprets pickle opcodes without executing any code in the pickle.
//! Python's `pickletools` documents the opcodes.
//!
//! Each opcode pushes a node or combines nodes. `allowed` implements the few functions that plain
//! data needs. All other functions and classes are rejected. The memory use of a malicious pickle
//! is limited to a fixed multiple of its length. Lengths are checked against the remaining bytes
//! before memory is allocated, and the numbers of nodes and of copied bytes are limited.

use std::borrow::Cow;

use super::allowed;
use super::nodes::{Callable, Id, Node, Nodes};
use crate::error::{Error, Result};

/// Reads a pickle of plain data in any protocol from 0 to 5: `None`, booleans, numbers, text,
/// bytes, tuples, lists, dicts, and NumPy arrays of numbers. Errors state the offset of the opcode
/// that failed.
pub(crate) fn read(bytes: &[u8]) -> Result<Nodes<'_>> {
    Machine::new(bytes, false).run()
}

/// Reads the `data.pkl` of a `.pt` archive, which may also contain tensors; see [`read`].
pub(crate) fn read_torch(bytes: &[u8]) -> Result<Nodes<'_>> {
    Machine::new(bytes, true).run()
}

/// Maximum number of nodes. A node takes about 60 bytes.
const MAX_NODES: usize = 1 << 24;

struct Machine<'a> {
    bytes: &'a [u8],
    position: usize,
    nodes: Nodes<'a>,
    stack: Vec<Id>,
    /// Stack length at each mark.
    marks: Vec<usize>,
    memo: Vec<Option<Id>>,
    /// Number of bytes that calls have copied so far.
    copied_bytes: usize,
    allows_torch: bool,
}

/// The result of one opcode. The caller adds the opcode and its offset to the error.
type OpcodeResult = std::result::Result<(), String>;

impl<'a> Machine<'a> {
    fn new(bytes: &'a [u8], allows_torch: bool) -> Self {
        let nodes = Nodes { nodes: Vec::new(), root: Id(0) };
        Machine {
            bytes,
            position: 0,
            nodes,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            copied_bytes: 0,
            allows_torch,
        }
    }

    fn run(mut self) -> Result<Nodes<'a>> {
        loop {
            let offset = self.position;
            let Some(&opcode) = self.bytes.get(offset) else {
                return Err(Error::in_source(format!(
                    "pickle: truncated at byte {offset}: the opcode STOP is missing"
                )));
            };
            self.position += 1;
            if opcode == b'.' {
                let root =
                    self.pop().map_err(|cause| Error::in_source(format!("pickle: STOP at byte {offset}: {cause}")))?;
                self.nodes.root = root;
                return Ok(self.nodes);
            }
            self.eval_opcode(opcode)
                .map_err(|cause| Error::in_source(format!("pickle: {} at byte {offset}: {cause}", name_of(opcode))))?;
            if self.nodes.nodes.len() > MAX_NODES {
                return Err(Error::in_source(format!("pickle: more than {MAX_NODES} values at byte {offset}")));
            }
        }
    }

    fn eval_opcode(&mut self, opcode: u8) -> OpcodeResult {
        match opcode {
            0x80 => match self.read_byte()? {
                0..=5 => Ok(()),
                version => Err(format!("protocol {version} is not supported: expected 0 to 5")),
            },
            0x95 => match self.read_u64()? {
                length if length > self.bytes.len() - self.position => Err(self.truncation_cause(length)),
                _ => Ok(()),
            },
            b'(' | b'0' | b'1' | b'2' => self.eval_stack(opcode),
            b'N' | 0x88 | 0x89 | b'I' | b'L' | b'J' | b'K' | b'M' | 0x8a | 0x8b | b'F' | b'G' => {
                self.eval_number(opcode)
            }
            b'S' | b'C' | b'U' | b'B' | b'T' | 0x8e | 0x96 => self.eval_string(opcode),
            b'V' | 0x8c | b'X' | 0x8d => self.eval_text(opcode),
            b']' | b')' | b'}' | b'l' | b't' | b'd' | 0x85..=0x87 => self.eval_collection(opcode),
            b'a' | b'e' | b's' | b'u' => self.eval_append(opcode),
            b'g' | b'h' | b'j' | b'p' | b'q' | b'r' | 0x94 => self.eval_memo(opcode),
            b'c' | 0x93 => self.eval_global(opcode),
            b'R' => self.eval_call(),
            b'b' => {
                let (state, target) = (self.pop()?, self.top()?);
                self.nodes.nodes[target.0 as usize] = allowed::build(&self.nodes, target, state)?;
                Ok(())
            }
            b'Q' if self.allows_torch => {
                let id = self.pop()?;
                let storage = allowed::storage_of(&self.nodes, id)?;
                self.push(storage)
            }
            _ => Err("only plain data is supported, but this opcode creates another kind of object".to_owned()),
        }
    }

    /// Evaluates opcodes that mark the stack, or remove or duplicate values.
    fn eval_stack(&mut self, opcode: u8) -> OpcodeResult {
        match opcode {
            b'(' => self.marks.push(self.stack.len()),
            b'0' if self.marks.last() == Some(&self.stack.len()) => drop(self.marks.pop()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_mark()?),
            _ => {
                let top = self.top()?;
                self.stack.push(top);
            }
        }
        Ok(())
    }

    fn eval_number(&mut self, opcode: u8) -> OpcodeResult {
        let node = match opcode {
            b'N' => Node::None,
            0x88 | 0x89 => Node::Bool(opcode == 0x88),
            b'I' => match self.read_line()? {
                "00" => Node::Bool(false),
                "01" => Node::Bool(true),
                digits => Node::Int(digits.trim().parse().map_err(|_| format!("{digits:?} is not an integer"))?),
            },
            b'L' => {
                let line = self.read_line()?;
                let digits = line.strip_suffix('L').unwrap_or(line);
                Node::Int(digits.parse().map_err(|_| format!("{line:?} is not an integer of up to 64 bits"))?)
            }
            b'J' => Node::Int(i32::from_le_bytes(self.read_array()?).into()),
            b'K' => Node::Int(u8::from_le_bytes(self.read_array()?).into()),
            b'M' => Node::Int(u16::from_le_bytes(self.read_array()?).into()),
            0x8a | 0x8b => {
                let length = if opcode == 0x8a { self.read_byte()? } else { self.read_u32()? };
                return self.push_integer(length);
            }
            b'F' => Node::Float(self.parse_line("a number")?),
            _ => Node::Float(f64::from_be_bytes(self.read_array()?)),
        };
        self.push(node)
    }

    fn eval_string(&mut self, opcode: u8) -> OpcodeResult {
        let length = match opcode {
            b'S' => {
                let bytes = unquote(self.read_line()?)?;
                return self.push(Node::Bytes(Cow::Owned(bytes)));
            }
            b'C' | b'U' => self.read_byte()?,
            b'B' | b'T' => self.read_u32()?,
            _ => self.read_u64()?,
        };
        self.push_bytes(length)
    }

    fn eval_text(&mut self, opcode: u8) -> OpcodeResult {
        let length = match opcode {
            b'V' => {
                let text = unescape(self.read_line_bytes()?)?;
                return self.push(Node::Text(text));
            }
            0x8c => self.read_byte()?,
            b'X' => self.read_u32()?,
            _ => self.read_u64()?,
        };
        self.push_text(length)
    }

    fn eval_collection(&mut self, opcode: u8) -> OpcodeResult {
        let node = match opcode {
            b']' => Node::List(Vec::new()),
            b')' => Node::Tuple(Vec::new()),
            b'}' => Node::Dict(Vec::new()),
            b'l' => Node::List(self.pop_mark()?),
            b't' => Node::Tuple(self.pop_mark()?),
            b'd' => Node::Dict(pair_items(&self.pop_mark()?)?),
            _ => {
                let from = self.stack_len_without(usize::from(opcode - 0x84))?;
                Node::Tuple(self.stack.split_off(from))
            }
        };
        self.push(node)
    }

    /// Evaluates opcodes that add items to a list or pairs to a dict.
    fn eval_append(&mut self, opcode: u8) -> OpcodeResult {
        match opcode {
            b'a' => {
                let item = self.pop()?;
                self.top_list()?.push(item);
            }
            b'e' => {
                let items = self.pop_mark()?;
                self.top_list()?.extend(items);
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.top_dict()?.push((key, value));
            }
            _ => {
                let pairs = pair_items(&self.pop_mark()?)?;
                self.top_dict()?.extend(pairs);
            }
        }
        Ok(())
    }

    fn eval_memo(&mut self, opcode: u8) -> OpcodeResult {
        let index = match opcode {
            b'g' | b'p' => self.parse_line("a number")?,
            b'h' | b'q' => self.read_byte()?,
            b'j' | b'r' => self.read_u32()?,
            _ => self.memo.len(),
        };
        if matches!(opcode, b'g' | b'h' | b'j') { self.push_memo_entry(index) } else { self.store_memo_entry(index) }
    }

    fn parse_line<T: std::str::FromStr>(&mut self, what: &str) -> std::result::Result<T, String> {
        let line = self.read_line()?;
        line.parse().map_err(|_| format!("{line:?} is not {what}"))
    }

    fn eval_global(&mut self, opcode: u8) -> OpcodeResult {
        if opcode == b'c' {
            let (module, name) = (self.read_line()?, self.read_line()?);
            return self.push_callable(module, name);
        }
        let (name, module) = (self.pop()?, self.pop()?);
        let (Node::Text(module), Node::Text(name)) = (&self.nodes[module], &self.nodes[name]) else {
            return Err("a name is not text".to_owned());
        };
        let (module, name) = (module.clone(), name.clone());
        self.push_callable(&module, &name)
    }

    fn eval_call(&mut self) -> OpcodeResult {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let (&Node::Callable(function), Node::Tuple(arguments)) = (&self.nodes[function], &self.nodes[arguments])
        else {
            return Err(format!("cannot call {}", self.nodes[function].kind()));
        };
        let result = allowed::call(&self.nodes, function, arguments)?;
        if let Node::Bytes(Cow::Owned(bytes)) = &result {
            // Count the bytes, because a shared value may be converted many times.
            self.copied_bytes += bytes.len();
            if self.copied_bytes > self.bytes.len() {
                return Err(format!(
                    "{} bytes of converted text exceed the {} bytes of the pickle",
                    self.copied_bytes,
                    self.bytes.len()
                ));
            }
        }
        self.push(result)
    }

    fn push_callable(&mut self, module: &str, name: &str) -> OpcodeResult {
        let allowed = Callable::find(module, name, self.allows_torch).ok_or_else(|| {
            format!(
                "{module}.{name} is refused: only plain data and arrays of numbers are read, and no code is executed"
            )
        })?;
        self.push(Node::Callable(allowed))
    }

    fn push(&mut self, node: Node<'a>) -> OpcodeResult {
        // `MAX_NODES` ensures that the index fits in a `u32`.
        self.stack.push(Id(self.nodes.nodes.len() as u32));
        self.nodes.nodes.push(node);
        Ok(())
    }

    /// Returns the stack length without the last `count` values, which must be above the last mark.
    fn stack_len_without(&self, count: usize) -> std::result::Result<usize, String> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self.stack.len().checked_sub(count).filter(|&from| from >= floor);
        from.ok_or_else(|| "the stack is empty".to_owned())
    }

    fn pop(&mut self) -> std::result::Result<Id, String> {
        self.stack_len_without(1)?;
        Ok(self.stack.pop().expect("not empty"))
    }

    fn top(&self) -> std::result::Result<Id, String> {
        self.stack_len_without(1).map(|last| self.stack[last])
    }

    fn pop_mark(&mut self) -> std::result::Result<Vec<Id>, String> {
        let mark = self.marks.pop().ok_or("there is no mark")?;
        Ok(self.stack.split_off(mark))
    }

    fn top_list(&mut self) -> std::result::Result<&mut Vec<Id>, String> {
        let top = self.top()?;
        match &mut self.nodes.nodes[top.0 as usize] {
            Node::List(items) => Ok(items),
            node => Err(format!("{} is not a list", node.kind())),
        }
    }

    fn top_dict(&mut self) -> std::result::Result<&mut Vec<(Id, Id)>, String> {
        let top = self.top()?;
        match &mut self.nodes.nodes[top.0 as usize] {
            Node::Dict(pairs) => Ok(pairs),
            node => Err(format!("{} is not a dict", node.kind())),
        }
    }

    fn push_memo_entry(&mut self, index: usize) -> OpcodeResult {
        let id =
            self.memo.get(index).copied().flatten().ok_or_else(|| format!("entry {index} of the memo is empty"))?;
        self.stack.push(id);
        Ok(())
    }

    fn store_memo_entry(&mut self, index: usize) -> OpcodeResult {
        let top = self.top()?;
        // Picklers number memo entries consecutively, and each entry takes at least one byte of the
        // pickle. A larger index indicates damage.
        if index > self.bytes.len() {
            return Err(format!("a pickle of {} bytes cannot have the memo entry {index}", self.bytes.len()));
        }
        if self.memo.len() <= index {
            self.memo.resize(index + 1, None);
        }
        self.memo[index] = Some(top);
        Ok(())
    }

    fn read_slice(&mut self, length: usize) -> std::result::Result<&'a [u8], String> {
        let remaining = &self.bytes[self.position..];
        let content = remaining.get(..length).ok_or_else(|| self.truncation_cause(length))?;
        self.position += length;
        Ok(content)
    }

    fn truncation_cause(&self, length: usize) -> String {
        format!(
            "{length} bytes are claimed at byte {}, but the pickle ends at byte {}",
            self.position,
            self.bytes.len()
        )
    }

    fn read_array<const N: usize>(&mut self) -> std::result::Result<[u8; N], String> {
        self.read_slice(N).map(|bytes| *bytes.first_chunk().expect("`read_slice` returns `N` bytes"))
    }

    fn read_byte(&mut self) -> std::result::Result<usize, String> {
        self.read_array().map(|[byte]| byte.into())
    }

    fn read_u32(&mut self) -> std::result::Result<usize, String> {
        self.read_array().map(|bytes| u32::from_le_bytes(bytes) as usize)
    }

    fn read_u64(&mut self) -> std::result::Result<usize, String> {
        let long = self.read_array().map(u64::from_le_bytes)?;
        usize::try_from(long).map_err(|_| format!("the length {long} is not supported"))
    }

    fn read_line_bytes(&mut self) -> std::result::Result<&'a [u8], String> {
        let remaining = &self.bytes[self.position..];
        let end = memchr::memchr(b'\n', remaining).ok_or("unterminated line")?;
        self.position += end + 1;
        Ok(&remaining[..end])
    }

    fn read_line(&mut self) -> std::result::Result<&'a str, String> {
        std::str::from_utf8(self.read_line_bytes()?).map_err(|_| "a line is not UTF-8".to_owned())
    }

    fn push_bytes(&mut self, length: usize) -> OpcodeResult {
        let bytes = self.read_slice(length)?;
        self.push(Node::Bytes(Cow::Borrowed(bytes)))
    }

    fn push_text(&mut self, length: usize) -> OpcodeResult {
        let text = std::str::from_utf8(self.read_slice(length)?).map_err(|_| "text is not UTF-8")?;
        self.push(Node::Text(Cow::Borrowed(text)))
    }

    /// Reads a little-endian two's complement integer of `length` bytes.
    fn push_integer(&mut self, length: usize) -> OpcodeResult {
        let bytes = self.read_slice(length)?;
        let sign = if bytes.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
        let (low, high) = bytes.split_at(length.min(8));
        let mut long = [sign; 8];
        long[..low.len()].copy_from_slice(low);
        let long = i64::from_le_bytes(long);
        if high.iter().any(|&byte| byte != sign) || (long < 0) != (sign != 0) {
            return Err(format!("an integer has {length} bytes, but only up to 64 bits are supported"));
        }
        self.push(Node::Int(long))
    }
}

fn pair_items(items: &[Id]) -> std::result::Result<Vec<(Id, Id)>, String> {
    match items.as_chunks::<2>() {
        (pairs, []) => Ok(pairs.iter().map(|&[key, value]| (key, value)).collect()),
        _ => Err("a key has no value".to_owned()),
    }
}

/// Decodes a quoted Python 2 string, such as `'a\x00\n'`.
fn unquote(line: &str) -> std::result::Result<Vec<u8>, String> {
    let line = line.trim_end();
    let quote = line.chars().next().filter(|quote| matches!(quote, '\'' | '"')).ok_or("a string has no quotes")?;
    let inner = line[1..].strip_suffix(quote).ok_or("unterminated string")?.as_bytes();
    let mut bytes = Vec::new();
    let mut offset = 0;
    while let Some(&byte) = inner.get(offset) {
        offset += 1;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let escape = *inner.get(offset).ok_or("incomplete escape")?;
        offset += 1;
        bytes.push(match escape {
            b'\\' | b'\'' | b'"' => escape,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => {
                let digits = inner.get(offset..offset + 2).and_then(|digits| std::str::from_utf8(digits).ok());
                offset += 2;
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                byte.ok_or("an escape is not hexadecimal")?
            }
            _ => return Err(format!("the escape \\{} is not supported", escape.escape_ascii())),
        });
    }
    Ok(bytes)
}

/// Python's `raw-unicode-escape` is Latin-1 with escapes for all other characters.
fn unescape(line: &[u8]) -> std::result::Result<Cow<'_, str>, String> {
    if let (Ok(text), true) = (std::str::from_utf8(line), line.is_ascii() && !line.contains(&b'\\')) {
        return Ok(Cow::Borrowed(text));
    }
    let mut text = String::new();
    let mut remaining = line;
    while let Some((&byte, after)) = remaining.split_first() {
        let digits = match (byte, after.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            // A backslash that does not start one of these escapes is literal.
            _ => {
                text.push(char::from(byte));
                remaining = after;
                continue;
            }
        };
        let code = after.get(1..=digits).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u32::from_str_radix(digits, 16).ok()).and_then(char::from_u32);
        text.push(code.ok_or("an escape is not a character")?);
        remaining = &after[1 + digits..];
    }
    Ok(Cow::Owned(text))
}

/// Returns the name in Python's `pickletools` of an opcode that is often rejected, and a
/// description of any other opcode.
fn name_of(opcode: u8) -> Cow<'static, str> {
    Cow::Borrowed(match opcode {
        b'P' => "PERSID",
        b'Q' => "BINPERSID",
        b'R' => "REDUCE",
        b'b' => "BUILD",
        b'c' => "GLOBAL",
        b'i' => "INST",
        b'o' => "OBJ",
        0x81 => "NEWOBJ",
        0x82 => "EXT1",
        0x83 => "EXT2",
        0x84 => "EXT4",
        0x8f => "EMPTY_SET",
        0x90 => "ADDITEMS",
        0x91 => "FROZENSET",
        0x92 => "NEWOBJ_EX",
        0x93 => "STACK_GLOBAL",
        0x97 => "NEXT_BUFFER",
        0x98 => "READONLY_BUFFER",
        0x80 => "PROTO",
        0x95 => "FRAME",
        _ => return Cow::Owned(format!("opcode {:?}", char::from(opcode))),
    })
}

#[cfg(test)]
mod tests;
