//! Fields of MessagePack maps, one by one. In and out: bytes. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use rmp::encode as put;
use rmpv::ValueRef;

use super::Error;
use crate::algorithm::Algorithm;
use crate::path::Key;

/// Packs have a few levels; deeper ones are an attack.
const DEPTH: u16 = 32;

pub(super) fn unwrapped(payload: &str) -> Result<Vec<u8>, Error> {
    STANDARD_NO_PAD.decode(payload).map_err(|_| Error::Base64)
}

pub(super) fn read(bytes: &[u8]) -> Result<ValueRef<'_>, Error> {
    let mut rest = bytes;
    let value = rmpv::decode::read_value_ref_with_max_depth(&mut rest, DEPTH.into());
    let value = value.map_err(|_| Error::MessagePack)?;
    if rest.is_empty() {
        Ok(value)
    } else {
        Err(Error::Trailing(rest.len()))
    }
}

// Writing to memory does not fail.
pub(super) fn map(out: &mut Vec<u8>, fields: u32) {
    let _ = put::write_map_len(out, fields);
}

pub(super) fn word(out: &mut Vec<u8>, word: &str) {
    let _ = put::write_str(out, word);
}

/// Text of any bytes: names of files need not be UTF-8.
pub(super) fn text(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    word(out, name);
    let _ = put::write_str_len(out, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.extend_from_slice(bytes);
}

pub(super) fn number(out: &mut Vec<u8>, name: &str, value: u64) {
    word(out, name);
    let _ = put::write_uint(out, value);
}

pub(super) fn binary(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    word(out, name);
    let _ = put::write_bin(out, bytes);
}

pub(super) fn list(out: &mut Vec<u8>, name: &str, length: usize) {
    word(out, name);
    let _ = put::write_array_len(out, u32::try_from(length).unwrap_or(u32::MAX));
}

pub(super) fn find<'a>(value: &'a ValueRef<'a>, name: &str) -> Option<&'a ValueRef<'a>> {
    let ValueRef::Map(fields) = value else {
        return None;
    };
    let found = fields
        .iter()
        .find(|(key, _)| raw(key) == Some(name.as_bytes()));
    found
        .map(|(_, value)| value)
        .filter(|value| !matches!(value, ValueRef::Nil))
}

pub(super) fn signed(value: &ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Integer(number) => number.as_i64(),
        ValueRef::Nil
        | ValueRef::Boolean(_)
        | ValueRef::String(_)
        | ValueRef::Binary(_)
        | ValueRef::F32(_)
        | ValueRef::F64(_)
        | ValueRef::Array(_)
        | ValueRef::Map(_)
        | ValueRef::Ext(..) => None,
    }
}

pub(super) fn raw<'a>(value: &'a ValueRef<'a>) -> Option<&'a [u8]> {
    match value {
        ValueRef::String(text) => Some(text.as_bytes()),
        ValueRef::Binary(bytes) => Some(bytes),
        ValueRef::Nil
        | ValueRef::Boolean(_)
        | ValueRef::Integer(_)
        | ValueRef::F32(_)
        | ValueRef::F64(_)
        | ValueRef::Array(_)
        | ValueRef::Map(_)
        | ValueRef::Ext(..) => None,
    }
}

pub(super) fn bytes(value: &ValueRef<'_>, name: &'static str) -> Result<Vec<u8>, Error> {
    let found = find(value, name).and_then(raw);
    found.map(<[u8]>::to_vec).ok_or(Error::Field(name))
}

pub(super) fn string(value: &ValueRef<'_>, name: &'static str) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(&bytes(value, name)?).into_owned())
}

pub(super) fn whole(value: &ValueRef<'_>, name: &'static str) -> Result<u64, Error> {
    find(value, name)
        .and_then(ValueRef::as_u64)
        .ok_or(Error::Field(name))
}

pub(super) fn array<'a>(
    value: &'a ValueRef<'a>,
    name: &'static str,
) -> Result<&'a Vec<ValueRef<'a>>, Error> {
    find(value, name)
        .and_then(ValueRef::as_array)
        .ok_or(Error::Field(name))
}

pub(super) fn key(value: &ValueRef<'_>) -> Result<Option<Key>, Error> {
    match find(value, "Key") {
        None => Ok(None),
        Some(found) => {
            let key = raw(found).and_then(Key::from_bytes);
            key.map(Some).ok_or(Error::Field("Key"))
        }
    }
}

pub(super) fn algorithm(
    value: &ValueRef<'_>,
    name: &'static str,
) -> Result<Option<Algorithm>, Error> {
    match find(value, name) {
        None => Ok(None),
        Some(found) => {
            let algorithm = signed(found).and_then(Algorithm::from_id);
            algorithm.map(Some).ok_or(Error::Field(name))
        }
    }
}
