package relaybus

import (
	"slices"
	"sync"
	"time"

	"github.com/relaybus-go/relaybus/store"
)

// catalog knows which handlers get which event types: this process's own, and
// those that others have recorded in the store.
type catalog struct {
	off bool

	mu     sync.RWMutex
	own    []*Handler
	remote []store.HandlerEntry
	loaded time.Time
	byType map[string][]store.Handler
}

func newCatalog(off bool) *catalog {
	return &catalog{off: off, byType: make(map[string][]store.Handler)}
}

func (c *catalog) setOwn(handlers []*Handler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = slices.Clone(handlers)
	clear(c.byType)
}

func (c *catalog) setRemote(entries []store.HandlerEntry, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remote, c.loaded = entries, now
	clear(c.byType)
}

// loadedAt is when the remote entries were read last, or the zero time.
func (c *catalog) loadedAt() time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.loaded
}

// entries are what this process records about its handlers. What others have
// recorded under the same id stays: they may run an older or newer version of
// it, and a type that is missing for a moment would lose deliveries for good. An
// entry that was retired begins anew when revive is set, and is left out otherwise.
func (c *catalog) entries(revive bool) []store.HandlerEntry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	entries := make([]store.HandlerEntry, 0, len(c.own))
	for _, h := range c.own {
		if h.drainOnly {
			continue
		}
		e := store.HandlerEntry{
			Handler: store.Handler{ID: h.id, Aliases: slices.Clone(h.aliases)}, Types: slices.Clone(h.types),
		}
		old, ok := c.entry(h.id)
		if ok && old.Retired && !revive {
			continue
		}
		if ok && !old.Retired {
			e.Types = union(e.Types, old.Types)
			e.Aliases = union(e.Aliases, old.Aliases)
		}
		entries = append(entries, e)
	}
	return entries
}

// entry is what the store has recorded of an id. The caller holds the lock.
func (c *catalog) entry(id string) (store.HandlerEntry, bool) {
	for _, e := range c.remote {
		if e.ID == id && !e.RecordedAt.IsZero() {
			return e, true
		}
	}
	return store.HandlerEntry{}, false
}

// incomplete reports whether the store lacks something that this process has
// recorded: another version of a handler may have replaced its entry. An entry
// that was retired is not missed.
func (c *catalog) incomplete() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, h := range c.own {
		if h.drainOnly {
			continue
		}
		old, ok := c.entry(h.id)
		if !ok || (!old.Retired && (len(union(old.Types, h.types)) > len(old.Types) ||
			len(union(old.Aliases, h.aliases)) > len(old.Aliases))) {
			return true
		}
	}
	return false
}

// union adds to a list what it lacks.
func union(list, more []string) []string {
	list = slices.Clip(list)
	for _, text := range more {
		if !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

// maxCachedTypes bounds the memory of a process that publishes made-up types.
const maxCachedTypes = 10_000

// handlersOf returns the handlers of an event type, each with all its ids.
func (c *catalog) handlersOf(typeName string) []store.Handler {
	c.mu.RLock()
	cached, ok := c.byType[typeName]
	c.mu.RUnlock()
	if ok {
		return cached
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []store.Handler
	covered := make(map[string]bool)
	add := func(id string, aliases []string) {
		set := c.set(id, aliases)
		if covered[id] {
			return
		}
		covered[set.ID] = true
		for _, alias := range set.Aliases {
			covered[alias] = true
		}
		list = append(list, set)
	}
	for _, h := range c.own {
		old, recorded := c.entry(h.id)
		switch {
		case h.drainOnly, recorded && old.Retired && !c.off:
			// Nothing new for it, whatever others have recorded under its ids.
			covered[h.id] = true
			for _, alias := range h.aliases {
				covered[alias] = true
			}
		case matchesAny(h.types, typeName):
			add(h.id, h.aliases)
		}
	}
	if !c.off {
		for _, e := range c.remote {
			if !e.Retired && matchesAny(e.Types, typeName) {
				add(e.ID, e.Aliases)
			}
		}
	}
	if len(c.byType) >= maxCachedTypes {
		clear(c.byType)
	}
	c.byType[typeName] = list
	return list
}

// set completes the ids of a handler with what others say: a process that
// runs it under an old name must know of the new one. The caller holds the lock.
func (c *catalog) set(id string, aliases []string) store.Handler {
	ids := append([]string{id}, aliases...)
	if !c.off {
		for i := 0; i < len(ids); i++ {
			for _, e := range c.remote {
				named := append([]string{e.ID}, e.Aliases...)
				if len(e.Aliases) == 0 || !slices.Contains(named, ids[i]) {
					continue
				}
				for _, other := range named {
					if !slices.Contains(ids, other) {
						ids = append(ids, other)
					}
				}
			}
		}
	}
	return store.Handler{ID: id, Aliases: ids[1:]}
}

// aliasesOf returns all further ids of one of this process's handlers.
func (c *catalog) aliasesOf(h *Handler) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.set(h.id, h.aliases).Aliases
}

// knows reports whether some process has a handler of this id: this one, or one
// that has recorded it since.
func (c *catalog) knows(id string, since time.Time) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, h := range c.own {
		if h.id == id || slices.Contains(h.aliases, id) {
			return true
		}
	}
	for _, e := range c.remote {
		if len(e.Types) > 0 && !e.Retired && !e.RecordedAt.Before(since) && (e.ID == id || slices.Contains(e.Aliases, id)) {
			return true
		}
	}
	return false
}

// hasStrangers reports whether the store has handlers that nobody knows.
func (c *catalog) hasStrangers(since time.Time) bool {
	c.mu.RLock()
	remote := c.remote
	c.mu.RUnlock()
	for _, e := range remote {
		if !c.knows(e.ID, since) {
			return true
		}
	}
	return false
}
