//! A trie of all tokens, to find those with which a text begins.
//!
//! Nodes are numbered level by level from the root (0), so that the children of a node are
//! adjacent. A node takes eight bytes: the byte that leads to it, the position of its children, and
//! its token. Two tables replace the first two steps. A walk costs a dependent memory access and a
//! branch prediction per byte; 65,536 tokens of package records make 290,000 nodes, which about fit
//! a second-level cache.

use super::strings::Strings;

/// Marks a missing node.
const NONE: u32 = u32::MAX;

/// A node, from the lowest bit on: its first child (24 bits), the number of children (9), the byte
/// that leads to it (8), and its token plus one (20; 0 if it is not a token).
#[derive(Clone, Copy, Debug)]
struct Node(u64);

impl Node {
    fn new(label: u8) -> Self {
        Self(u64::from(label) << 33)
    }

    fn set_token(&mut self, token: u32) {
        self.0 |= u64::from(token + 1) << 41;
    }

    fn set_children(&mut self, first: usize, count: usize) {
        self.0 |= first as u64 | (count as u64) << 24;
    }

    #[inline(always)]
    fn label(self) -> u8 {
        (self.0 >> 33) as u8
    }

    #[inline(always)]
    fn children(self) -> (u32, u32) {
        (self.0 as u32 & 0xFF_FFFF, (self.0 >> 24) as u32 & 0x1FF)
    }

    #[inline(always)]
    fn token(self) -> Option<u32> {
        ((self.0 >> 41) as u32).checked_sub(1)
    }
}

/// The trie; see the module.
#[derive(Debug)]
pub(super) struct Trie {
    nodes: Vec<Node>,
    /// The nodes of every byte, and of every two bytes.
    ones: Vec<u32>,
    twos: Vec<u32>,
}

impl Trie {
    /// Builds the trie of distinct, non-empty tokens, which include each single byte: at most 2¹⁸
    /// tokens of up to 64 bytes.
    pub(super) fn new(tokens: &Strings) -> Self {
        let mut sorted: Vec<u32> = (0..tokens.len() as u32).collect();
        sorted.sort_unstable_by_key(|&token| tokens.get(token));
        let bytes = |place: u32| tokens.get(sorted[place as usize]);
        let mut nodes = vec![Node::new(0)];
        // The range of sorted tokens below each node, and its depth.
        let mut below = vec![(0, sorted.len() as u32, 0)];
        let mut node = 0;
        while let Some(&(mut from, to, depth)) = below.get(node) {
            if from < to && bytes(from).len() == depth {
                nodes[node].set_token(sorted[from as usize]);
                from += 1;
            }
            let first = nodes.len();
            while from < to {
                let label = bytes(from)[depth];
                let same = |&token: &u32| tokens.get(token)[depth] == label;
                let run = sorted[from as usize..to as usize].partition_point(same);
                let end = from + run as u32;
                nodes.push(Node::new(label));
                below.push((from, end, depth + 1));
                from = end;
            }
            let count = nodes.len() - first;
            nodes[node].set_children(first, count);
            node += 1;
        }
        let mut trie = Self { nodes, ones: Vec::new(), twos: Vec::new() };
        let every = || 0..=u8::MAX;
        trie.ones = every().map(|byte| trie.child(0, byte)).collect();
        let twos = every().flat_map(|first| every().map(move |second| (first, second)));
        trie.twos =
            twos.map(|(first, second)| trie.child(trie.ones[first as usize], second)).collect();
        trie
    }

    #[inline(always)]
    fn child(&self, node: u32, byte: u8) -> u32 {
        let (first, count) = self.nodes[node as usize].children();
        let children = &self.nodes[first as usize..(first + count) as usize];
        let place = match children.len() {
            // Most nodes have few children, and the first is as likely as the others together.
            0..=16 => children.iter().take_while(|child| child.label() < byte).count(),
            _ => children.partition_point(|child| child.label() < byte),
        };
        match children.get(place) {
            Some(child) if child.label() == byte => first + place as u32,
            _ => NONE,
        }
    }

    /// Calls `matched(token, length)` for each token with which `text` begins, in order of length.
    #[inline(always)]
    pub(super) fn matches(&self, text: &[u8], mut matched: impl FnMut(u32, usize)) {
        let Some(&first) = text.first() else { return };
        let mut node = self.ones[first as usize];
        let mut len = 1;
        loop {
            if let Some(token) = self.nodes[node as usize].token() {
                matched(token, len);
            }
            let Some(&byte) = text.get(len) else { return };
            node = match len {
                1 => self.twos[usize::from(first) << 8 | usize::from(byte)],
                _ => self.child(node, byte),
            };
            if node == NONE {
                return;
            }
            len += 1;
        }
    }

    /// Returns the longest token with which `text` begins, and its length. `text` must not be
    /// empty.
    #[inline]
    pub(super) fn longest(&self, text: &[u8]) -> (u32, usize) {
        let mut longest = (0, 1);
        self.matches(text, |token, len| longest = (token, len));
        longest
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn matches_are_all_tokens_that_the_text_begins_with(
            longer in prop::collection::btree_set(prop::collection::vec(0u8..3, 2..6), 0..40),
            text in prop::collection::vec(0u8..4, 1..12),
        ) {
            let mut tokens: Strings = longer.into_iter().collect();
            Strings::singles().iter().for_each(|single| tokens.push(&[single]));
            let trie = Trie::new(&tokens);
            let mut found = Vec::new();
            trie.matches(&text, |token, len| found.push((len, token)));
            let mut expected: Vec<(usize, u32)> = tokens
                .iter()
                .enumerate()
                .filter(|(_, token)| text.starts_with(token))
                .map(|(number, token)| (token.len(), number as u32))
                .collect();
            expected.sort_unstable();
            prop_assert_eq!(&found, &expected);
            let last = expected.last().map(|&(len, token)| (token, len));
            prop_assert_eq!(Some(trie.longest(&text)), last);
        }
    }
}
