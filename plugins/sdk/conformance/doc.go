// Package conformance is what any plugin of a kind must pass, in process and
// out of it. A plugin's author runs it in a test:
//
//	for _, v := range conformance.Check(sdk.Promotion, policy{}, seed) {
//		t.Error(v)
//	}
//
// A broker trusts no plugin: what breaks a rule here is refused there, and in
// the journal. The suite says so before an operator does. Each violation names
// its rule:
//
//	Described      kind, name and version, the same each time
//	Pure           the same event has the same answer, in whatever order events come
//	OfItsKind      wishes are those of its kind, about the event's subject, with a reason
//	Unknown        an event it does not know has no wish and no error
//	Total          no event makes it fail or panic, whatever its facts
//	InTime         an answer takes less than the broker waits
//	Evidence       it wishes only what the facts allow
//	Progress       it wishes what is due
package conformance
