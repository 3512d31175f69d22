//! One connection to a database, whichever it is. In: statements and values. Out: rows, from which values are read in order.
//! Touches: a SQLite file, or a MySQL or MariaDB server.

use std::time::Duration;

use futures::TryStreamExt as _;
use sqlx::mysql::{MySqlArguments, MySqlConnectOptions, MySqlConnection, MySqlRow};
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, MySql, Row as _, Sqlite, TypeInfo as _,
    ValueRef as _, query::Query,
};

use tokio::time::timeout;

use super::{Error, dialect::Dialect};
use crate::path::Key;

/// How long one waits for a connection to be made.
const CONNECT: Duration = Duration::from_secs(30);
/// The longest that one statement may take: longer than any of ours needs, and not for ever.
const STATEMENT: Duration = Duration::from_mins(5);
/// Statements of more values are seldom the same twice, and are not kept but where it is said.
const FEW_VALUES: usize = 32;
const PING: Duration = Duration::from_secs(10);

/// How to connect.
#[derive(Clone)]
pub(super) enum Place {
    Sqlite(SqliteConnectOptions),
    Mysql(MySqlConnectOptions),
}

/// A connection.
#[derive(Debug)]
pub(super) enum Link {
    Sqlite(Box<SqliteConnection>),
    Mysql(Box<MySqlConnection>),
}

/// A value, of a parameter or of a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u64> for Value {
    /// As its bits: sizes have no sign, and databases have no others.
    fn from(value: u64) -> Self {
        Self::Int(value.cast_signed())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Int(value.into())
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.into())
    }
}

impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Self {
        Self::Bytes(value.into())
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Values for a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => { [$($crate::store::link::Value::from($value)),*] };
}
pub(super) use values;

/// A row: its columns in the order in which they were asked for.
#[derive(Debug)]
pub(super) struct Row {
    columns: Columns,
    next: usize,
}

#[derive(Debug)]
enum Columns {
    Sqlite(SqliteRow),
    Mysql(MySqlRow),
}

impl From<SqliteRow> for Row {
    fn from(row: SqliteRow) -> Self {
        let columns = Columns::Sqlite(row);
        Self { columns, next: 0 }
    }
}

impl From<MySqlRow> for Row {
    fn from(row: MySqlRow) -> Self {
        let columns = Columns::Mysql(row);
        Self { columns, next: 0 }
    }
}

impl Row {
    fn next(&mut self) -> Result<Value, Error> {
        let column = self.next;
        self.next += 1;
        match &self.columns {
            Columns::Sqlite(row) => sqlite_value(row, column),
            Columns::Mysql(row) => mysql_value(row, column),
        }
    }

    /// The next column, a key. Every row has one, so no memory is taken for it.
    pub(super) fn key(&mut self) -> Result<Key, Error> {
        let column = self.next;
        self.next += 1;
        let bytes: &[u8] = match &self.columns {
            Columns::Sqlite(row) => row.try_get(column)?,
            Columns::Mysql(row) => row.try_get(column)?,
        };
        let key = Key::from_bytes(bytes);
        key.ok_or_else(|| Error::Damaged(format!("a key of {} bytes", bytes.len())))
    }

    /// The next column, a number. Every row has some, so the usual type is not asked for by its name.
    pub(super) fn int(&mut self) -> Result<i64, Error> {
        let usual = match &self.columns {
            Columns::Sqlite(row) => row.try_get(self.next),
            Columns::Mysql(row) => row.try_get(self.next),
        };
        if let Ok(value) = usual {
            self.next += 1;
            return Ok(value);
        }
        self.int_or_null()?.ok_or_else(|| damaged(&Value::Null))
    }

    /// The next column, a number or nothing.
    pub(super) fn int_or_null(&mut self) -> Result<Option<i64>, Error> {
        match self.next()? {
            Value::Null => Ok(None),
            Value::Int(value) => Ok(Some(value)),
            other @ (Value::Text(_) | Value::Bytes(_)) => Err(damaged(&other)),
        }
    }

    /// The next column, text.
    pub(super) fn text(&mut self) -> Result<String, Error> {
        self.text_or_null()?.ok_or_else(|| damaged(&Value::Null))
    }

    /// The next column, text or nothing.
    pub(super) fn text_or_null(&mut self) -> Result<Option<String>, Error> {
        match self.next()? {
            Value::Null => Ok(None),
            Value::Text(value) => Ok(Some(value)),
            Value::Bytes(value) => Ok(Some(String::from_utf8_lossy(&value).into_owned())),
            other @ Value::Int(_) => Err(damaged(&other)),
        }
    }

    /// The next column, bytes.
    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, Error> {
        self.bytes_or_null()?.ok_or_else(|| damaged(&Value::Null))
    }

    /// The next column, bytes or nothing.
    pub(super) fn bytes_or_null(&mut self) -> Result<Option<Vec<u8>>, Error> {
        match self.next()? {
            Value::Null => Ok(None),
            Value::Bytes(value) => Ok(Some(value)),
            Value::Text(value) => Ok(Some(value.into_bytes())),
            other @ Value::Int(_) => Err(damaged(&other)),
        }
    }
}

fn damaged(found: &Value) -> Error {
    Error::Damaged(format!("{found:?} where something else should be"))
}

impl Link {
    /// A server may take the connection and say nothing.
    pub(super) async fn connect(place: &Place) -> Result<Self, Error> {
        let connecting = async {
            Ok::<_, Error>(match place {
                Place::Sqlite(options) => Self::Sqlite(Box::new(options.connect().await?)),
                Place::Mysql(options) => Self::Mysql(Box::new(options.connect().await?)),
            })
        };
        let connected = timeout(CONNECT, connecting).await;
        connected.map_err(|_| Error::Slow)?
    }

    /// Begins a transaction; in SQLite one that writes, so that it waits for its turn now and not in the middle.
    pub(super) async fn begin(&mut self) -> Result<(), Error> {
        let words = match self {
            Self::Sqlite(_) => "BEGIN IMMEDIATE",
            Self::Mysql(_) => "START TRANSACTION",
        };
        self.raw(words).await
    }

    /// Ends it. Who leaves it open instead gives up the connection, and with it all that was written.
    pub(super) async fn commit(&mut self) -> Result<(), Error> {
        self.raw("COMMIT").await
    }

    /// Statements without values, as they are.
    pub(super) async fn raw(&mut self, sql: &str) -> Result<(), Error> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        bounded(async {
            match self {
                Self::Sqlite(link) => {
                    sql.execute(&mut **link).await?;
                }
                Self::Mysql(link) => {
                    sql.execute(&mut **link).await?;
                }
            }
            Ok(())
        })
        .await
    }

    /// A statement; how many rows it changed.
    pub(super) async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, Error> {
        let is_kept = values.len() <= FEW_VALUES;
        self.execute_many(sql, values.to_vec(), is_kept).await
    }

    /// The same with many values; one that is often the same is prepared once and kept.
    pub(super) async fn execute_many(
        &mut self,
        sql: &str,
        values: Vec<Value>,
        is_kept: bool,
    ) -> Result<u64, Error> {
        let statement = Statement::new(Dialect::spoken_by(self), sql, values, is_kept);
        self.carry_out(statement).await
    }

    /// A statement that was made before; how many rows it changed.
    pub(super) async fn carry_out(&mut self, statement: Statement) -> Result<u64, Error> {
        bounded(async {
            Ok(match (self, statement) {
                (Self::Sqlite(link), Statement::Sqlite(query)) => {
                    query.execute(&mut **link).await?.rows_affected()
                }
                (Self::Mysql(link), Statement::Mysql(query)) => {
                    query.execute(&mut **link).await?.rows_affected()
                }
                (Self::Sqlite(_), Statement::Mysql(_)) | (Self::Mysql(_), Statement::Sqlite(_)) => {
                    let why = "a statement for another kind of database";
                    return Err(Error::Damaged(why.into()));
                }
            })
        })
        .await
    }

    /// The rows that a statement finds.
    pub(super) async fn fetch(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, Error> {
        self.fetch_as(sql, values, Ok).await
    }

    /// The same, each made into something smaller as soon as it comes.
    pub(super) async fn fetch_as<T>(
        &mut self,
        sql: &str,
        values: &[Value],
        of: impl Fn(Row) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let (values, is_kept) = (values.to_vec(), values.len() <= FEW_VALUES);
        bounded(async {
            let mut found = Vec::new();
            match self {
                Self::Sqlite(link) => {
                    let mut rows = sqlite(sql, values, is_kept).fetch(&mut **link);
                    while let Some(row) = rows.try_next().await? {
                        found.push(of(row.into())?);
                    }
                }
                Self::Mysql(link) => {
                    let mut rows = mysql(sql, values, is_kept).fetch(&mut **link);
                    while let Some(row) = rows.try_next().await? {
                        found.push(of(row.into())?);
                    }
                }
            }
            Ok(found)
        })
        .await
    }

    /// The only row that a statement finds, if it finds one.
    pub(super) async fn fetch_one(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<Option<Row>, Error> {
        Ok(self.fetch(sql, values).await?.pop())
    }

    /// Whether the other side still answers.
    pub(super) async fn ping(&mut self) -> Result<(), Error> {
        let answered = async {
            match self {
                Self::Sqlite(link) => Ok(link.ping().await?),
                Self::Mysql(link) => Ok(link.ping().await?),
            }
        };
        timeout(PING, answered).await.map_err(|_| Error::Slow)?
    }
}

/// A statement and its values, as the driver takes them.
pub(super) enum Statement {
    Sqlite(Query<'static, Sqlite, SqliteArguments>),
    Mysql(Query<'static, MySql, MySqlArguments>),
}

impl Statement {
    pub(super) fn new(dialect: Dialect, sql: &str, values: Vec<Value>, is_kept: bool) -> Self {
        match dialect {
            Dialect::Sqlite => Self::Sqlite(sqlite(sql, values, is_kept)),
            Dialect::Mysql => Self::Mysql(mysql(sql, values, is_kept)),
        }
    }
}

async fn bounded<T>(statement: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(STATEMENT, statement)
        .await
        .map_err(|_| Error::Slow)?
}

/// Both drivers have these methods, but not in common.
macro_rules! bound {
    ($sql:expr, $values:expr, $is_kept:expr) => {{
        let query = sqlx::query(AssertSqlSafe($sql.to_owned())).persistent($is_kept);
        $values.into_iter().fold(query, |query, value| match value {
            Value::Null => query.bind(None::<i64>),
            Value::Int(value) => query.bind(value),
            Value::Text(value) => query.bind(value),
            Value::Bytes(value) => query.bind(value),
        })
    }};
}

fn sqlite(sql: &str, values: Vec<Value>, is_kept: bool) -> Query<'static, Sqlite, SqliteArguments> {
    bound!(sql, values, is_kept)
}

fn mysql(sql: &str, values: Vec<Value>, is_kept: bool) -> Query<'static, MySql, MySqlArguments> {
    bound!(sql, values, is_kept)
}

/// The type of a value was looked at, and need not be checked again.
fn sqlite_value(row: &SqliteRow, column: usize) -> Result<Value, Error> {
    let value = row.try_get_raw(column)?;
    Ok(match value.type_info().name() {
        _ if value.is_null() => Value::Null,
        "TEXT" => Value::Text(row.try_get_unchecked(column)?),
        "BLOB" => Value::Bytes(row.try_get_unchecked(column)?),
        _ => Value::Int(row.try_get_unchecked(column)?),
    })
}

fn mysql_value(row: &MySqlRow, column: usize) -> Result<Value, Error> {
    let value = row.try_get_raw(column)?;
    if value.is_null() {
        return Ok(Value::Null);
    }
    Ok(match value.type_info().name() {
        "BIGINT" | "INT" | "SMALLINT" | "TINYINT" => Value::Int(row.try_get_unchecked(column)?),
        name if name.ends_with("UNSIGNED") => Value::from(row.try_get::<u64, _>(column)?),
        name if name.ends_with("BLOB") || name.ends_with("BINARY") => {
            Value::Bytes(row.try_get_unchecked(column)?)
        }
        _ => Value::Text(row.try_get(column)?),
    })
}
