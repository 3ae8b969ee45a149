// Package release is the default policy of a source for Register and Release:
// it holds nothing. The ledger decides by the KIP's rules.
package release
