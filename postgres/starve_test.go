package postgres_test

import (
	"testing"
	"time"

	"github.com/relaybus-go/relaybus/postgres"
	"github.com/relaybus-go/relaybus/store"
)

// S4 I8 Z15: what waits behind a blocked key does not keep a claim from the rest of its handler: it finds some of that,
// or says that there is more, so that nobody sleeps over it.
func TestBlockedKeyStarvesNobody(t *testing.T) {
	t.Parallel()
	d := newDesk(t, newPool(t, newDatabaseURL(t)), postgres.Config{})
	head := d.event("head", "hot", "h")
	head.DueAt = d.now.Add(time.Hour)
	d.publish(head)
	followers := make([]store.NewEvent, 5000)
	for i, e := range d.events(len(followers), false, "h") {
		e.Key = "hot"
		followers[i] = e
	}
	d.publish(followers...)
	d.now = d.now.Add(time.Second)
	d.publish(d.events(50, true, "h")...)
	claims, got := 0, 0
	for got < 50 {
		result, err := d.s.Claim(t.Context(), d.request(10, "h"))
		if err != nil {
			t.Fatalf("claim: %v", err)
		}
		claims++
		n := len(result.Deliveries)
		if n == 0 && !result.More {
			t.Fatalf("claim %d found nothing, and does not say that there is more, after %d of 50", claims, got)
		}
		d.complete(result.Deliveries...)
		got += n
	}
	t.Logf("%d claims of 10 for 50", claims)
}
