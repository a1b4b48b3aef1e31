package jsonvalue

import (
	"bytes"
	"hash/maphash"
)

// fewNames is how many names of an object are compared one by one before they
// are indexed by hash. It bounds the work per name in small objects without
// making them pay for an index.
const fewNames = 16

// name is a member name after unescaping. It holds offsets because the
// memory of resolved names moves as it grows.
type name struct {
	start, end int
	resolved   bool // the offsets are in names.resolved, not in names.data
	next       int  // index of another name of the same hash, or -1
}

// names is a stack of the names of all open objects, the innermost on top.
type names struct {
	data     []byte
	resolved []byte // the names that have escapes, without them
	list     stack[name]
	seed     maphash.Seed
	seeded   bool
}

// members is the part of names that belongs to one object: from the two bases
// up to where the next inner object begins.
type members struct {
	base, resolvedBase int
	// heads maps a hash to the index of the last name that has it; nil
	// while the names are few.
	heads map[uint64]int
}

func (n *names) begin() members {
	return members{base: n.list.size, resolvedBase: len(n.resolved)}
}

func (n *names) end(m members) {
	n.list.truncate(m.base)
	n.resolved = n.resolved[:m.resolvedBase]
}

// add puts the name in a string token on the stack. The object must be the
// innermost.
func (n *names) add(m *members, t token) Reason {
	added := name{start: t.start + 1, end: t.end - 1, next: -1}
	if t.escaped {
		added.start, added.resolved = len(n.resolved), true
		n.resolved = appendText(n.resolved, t.inside(n.data))
		added.end = len(n.resolved)
	}
	text := n.text(&added)
	// Unescaped, a NUL is a control character and has been refused before.
	if t.escaped && bytes.IndexByte(text, 0) >= 0 {
		return NULInName
	}
	if m.heads == nil {
		for i := m.base; i < n.list.size; i++ {
			if bytes.Equal(n.text(n.list.at(i)), text) {
				return DuplicateName
			}
		}
		n.list.push(added)
		if n.list.size-m.base > fewNames {
			n.index(m)
		}
		return 0
	}
	hash := maphash.Bytes(n.seed, text)
	if head, found := m.heads[hash]; found {
		added.next = head
	}
	for i := added.next; i >= 0; i = n.list.at(i).next {
		if bytes.Equal(n.text(n.list.at(i)), text) {
			return DuplicateName
		}
	}
	m.heads[hash] = n.list.size
	n.list.push(added)
	return 0
}

// index builds the heads of an object. The seed is random, so that names which
// collide cannot be prepared.
func (n *names) index(m *members) {
	if !n.seeded {
		n.seed, n.seeded = maphash.MakeSeed(), true
	}
	m.heads = make(map[uint64]int, 2*fewNames)
	for i := m.base; i < n.list.size; i++ {
		indexed := n.list.at(i)
		hash := maphash.Bytes(n.seed, n.text(indexed))
		if head, found := m.heads[hash]; found {
			indexed.next = head
		}
		m.heads[hash] = i
	}
}

func (n *names) text(m *name) []byte {
	if m.resolved {
		return n.resolved[m.start:m.end]
	}
	return n.data[m.start:m.end]
}
