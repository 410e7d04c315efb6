//! Queries of records: attributes, ranges, combinations, regular expressions.
//!
//! A [`Query`] says what a record must be; [`Searcher`] finds the records by the index. It derives
//! the byte strings that a matching record must hold (module `filter`), asks how often each occurs,
//! locates the occurrences of the rarest, maps them to records, and reads those records to be
//! certain. So the answer never depends on what the filter is; only the work does. Where nothing
//! can be looked up (a range of numbers in an attribute that every record has, `NOT`), records are
//! read one after the other, within [`Limits`].
//!
//! # Syntax
//!
//! | query | records |
//! |---|---|
//! | `python` | that hold `python` anywhere |
//! | `Maintainer:python` | whose `Maintainer` contains it |
//! | `Section:=admin` | whose `Section` is `admin` |
//! | `Package:^lib` | whose `Package` starts with `lib` |
//! | `Package:~"^lib.*-dev$"` | whose `Package` has a match of the regular expression (`~…` alone: the record) |
//! | `i"python"`, `Maintainer:w"Python"`, `iw"cat"` | that contain it whatever its case (`i`), as a whole word (`w`) |
//! | `Installed-Size:1000..2000`, `Size:..10`, `Size:>=5` | in a range of numbers, ends included |
//! | `Package:"a".."b"`, `Version:<"2x"` | in a range of byte strings: quoted ends |
//! | `Tag:` | that have a `Tag` |
//! | `a b`, `a AND b`, `a OR b`, `NOT a`, `(a OR b) c` | combinations; `NOT` binds closest, then `AND` |
//! | `"a b"`, `"attribute name":"\x00 \" \\ \n"` | anything, in quotes; in a regular expression only `\"` is undone |
//!
//! Upper and lower case differ, of attributes and values; `~"(?i)…"` finds both. A value may occur
//! many times in a record (elements of a JSON array): one that fits is enough.
//!
//! ```
//! use shard::naive;
//! use shard::query::{Page, Query, Searcher};
//! use shard::record::{Builder, Schema};
//!
//! let text = b"name,size\ned,90\nnano,2900\nnvi,1500\n".to_vec();
//! let mut builder = Builder::new(Schema::detect(&text));
//! builder.push(&text)?;
//! let (records, _) = builder.finish()?;
//! let text = naive::Text::new(text);
//! let searcher = Searcher::new(&text, &records)?;
//! let query: Query = "name:^n AND size:1000..2000".parse()?;
//! let answer = searcher.search(&query, &Page::default())?;
//! assert_eq!(answer.records, [2]);
//! assert_eq!(searcher.get(2)?, b"nvi,1500\n");
//! assert_eq!(searcher.count(&"size:".parse()?)?, 3);
//! assert_eq!(searcher.get_by_key(b"nano")?, Some(1));
//! # Ok::<(), shard::Error>(())
//! ```

#[cfg(test)]
mod certain_tests;
mod condition;
mod display;
mod evaluate;
mod filter;
#[cfg(test)]
mod limits_tests;
mod pattern;
mod plan;
mod search;
mod syntax;
#[cfg(test)]
mod syntax_tests;
#[cfg(test)]
mod tests;

pub use condition::{Condition, Query, Test};
pub use pattern::Pattern;
pub use search::{Answer, Limits, Page, Searcher, Watch};
