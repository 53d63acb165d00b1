//! Judges calls on one register: whether they can have happened one after the other, each at a
//! moment between its begin and its end.
//!
//! As each change appends a number to a list, the last list that was seen tells of all changes and
//! their order, and any other that was seen must be a beginning of it.

use crate::registers::{Answer, Call, Wish, list_in};
use alexandra::model::register::Kept;
use std::collections::BTreeMap;

/// A list of numbers, and the date of its last change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct List {
    pub(crate) numbers: Vec<u32>,
    pub(crate) at: i64,
}

impl List {
    /// The last number; 0 if there is none.
    pub(crate) fn last(&self) -> u32 {
        self.numbers.last().copied().unwrap_or(0)
    }
}

/// The calls in the order in which they began. After the last change all was read once more.
pub(crate) fn judge(calls: &[&Call]) -> Result<(), String> {
    let seen = || {
        calls.iter().filter_map(|call| match &call.answer {
            Some(Answer::Seen(list)) => Some((*call, list)),
            _ => None,
        })
    };
    let Some((_, whole)) = seen().max_by_key(|(_, list)| list.numbers.len()) else {
        return Ok(());
    };
    let mut places = BTreeMap::new();
    for (place, number) in whole.numbers.iter().enumerate() {
        if places.insert(*number, place + 1).is_some() {
            return Err(format!("{number} is there twice"));
        }
    }
    let mut dates: BTreeMap<usize, i64> = BTreeMap::new();
    for (call, list) in seen() {
        let length = list.numbers.len();
        if list.numbers[..] != whole.numbers[..length] {
            return Err(format!("another list than {whole:?} was seen: {call}"));
        }
        if *dates.entry(length).or_insert(list.at) != list.at {
            return Err(format!("one change has two dates: {call}"));
        }
    }
    if !dates.values().is_sorted_by(|a, b| a < b) {
        return Err("a later change has no later date".into());
    }
    check_numbers(calls, whole)?;
    for call in calls {
        check_answer(call, &places, whole).map_err(|what| format!("{what}: {call}"))?;
    }
    check_order(calls, &places)?;
    check_unknown(calls, &places)
}

/// Judges what a node has followed, each with the number of the start, by the lists that clients
/// have seen: with each start it goes forward on the same line.
pub(crate) fn judge_followed(followed: &[(u64, Kept)], seen: &[&List]) -> Result<(), String> {
    let whole = seen.iter().max_by_key(|list| list.numbers.len());
    let mut former = (0, 0);
    for (start, Kept { version, value }) in followed {
        let list = list_in(value, *version).ok_or("it holds no list")?;
        let place = (*start, list.numbers.len());
        if place <= former {
            return Err(format!("{list:?} came late"));
        }
        former = place;
        if whole.is_none_or(|whole| !whole.numbers.starts_with(&list.numbers)) {
            return Err(format!("{list:?} is not on the line"));
        }
        if seen.iter().any(|it| it.numbers == list.numbers && it.at != list.at) {
            return Err(format!("{list:?} has another date for others"));
        }
    }
    Ok(())
}

/// Whether each number was to be appended by a call that had begun when it was seen.
fn check_numbers(calls: &[&Call], whole: &List) -> Result<(), String> {
    for number in &whole.numbers {
        let call = calls.iter().find(|call| call.wish.number() == Some(*number));
        let Some(call) = call else { return Err(format!("nobody has appended {number}")) };
        for other in calls {
            if let (Some(Answer::Seen(list)), Some(ended)) = (&other.answer, other.ended)
                && ended < call.began
                && list.numbers.contains(number)
            {
                return Err(format!("{number} was seen before somebody appended it: {other}"));
            }
        }
    }
    Ok(())
}

/// Whether the outcome of a call is true.
fn check_answer(call: &Call, places: &BTreeMap<u32, usize>, whole: &List) -> Result<(), String> {
    let place = call.wish.number().and_then(|number| places.get(&number).copied());
    let before = |place: usize| place.checked_sub(2).map_or(0, |before| whole.numbers[before]);
    match (&call.answer, call.wish) {
        (Some(Answer::Failed(what)), _) => return Err(what.clone()),
        (Some(Answer::Applied), _) if place.is_none() => return Err("a change is lost".into()),
        (Some(Answer::Seen(_) | Answer::Unavailable), _) if place.is_some() => {
            return Err("a change that was refused was done".into());
        }
        (Some(Answer::Seen(list)), Wish::AppendAfter(_, tail)) if list.last() == tail => {
            return Err("refused though it is as expected".into());
        }
        (Some(Answer::Seen(_)), Wish::Append(_)) => {
            return Err("refused without a condition".into());
        }
        _ => {}
    }
    match (call.wish, place) {
        (Wish::AppendAfter(_, tail), Some(place)) if before(place) != tail => {
            Err(format!("done after {}", before(place)))
        }
        _ => Ok(()),
    }
}

/// Whether no call has happened before another one that had ended when it began.
fn check_order(calls: &[&Call], places: &BTreeMap<u32, usize>) -> Result<(), String> {
    let place = |call: &Call| call.wish.number().and_then(|number| places.get(&number).copied());
    let known = |call: &Call| match &call.answer {
        Some(Answer::Seen(list)) => list.numbers.len(),
        Some(Answer::Applied) => place(call).unwrap_or(0),
        _ => 0,
    };
    for call in calls {
        let ended = calls.iter().filter(|it| it.ended.is_some_and(|ended| ended < call.began));
        let Some(former) = ended.max_by_key(|it| known(it)) else { continue };
        let happened = match &call.answer {
            Some(Answer::Seen(list)) => Some(list.numbers.len()),
            // It has appended behind what was there.
            _ => place(call).map(|place| place - 1),
        };
        if happened.is_some_and(|happened| happened < known(former)) {
            return Err(format!("{call}\nhas not seen what was there before:\n{former}"));
        }
    }
    Ok(())
}

/// Whether a change whose outcome was not known came late, after a call that has not seen it.
fn check_unknown(calls: &[&Call], places: &BTreeMap<u32, usize>) -> Result<(), String> {
    for call in calls {
        let (Some(Answer::TimedOut | Answer::Lost), Some(ended)) = (&call.answer, call.ended)
        else {
            continue;
        };
        let Some(number) = call.wish.number().filter(|it| places.contains_key(it)) else {
            continue;
        };
        for other in calls.iter().filter(|other| other.began > ended) {
            if let Some(Answer::Seen(list)) = &other.answer
                && !list.numbers.contains(&number)
            {
                return Err(format!("{call}\nwas done after this had not seen it:\n{other}"));
            }
        }
    }
    Ok(())
}
