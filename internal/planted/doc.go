// Package planted holds the tests to what they say: each patch in
// testdata/planted breaks one law, and the test it names must go red.
//
//	NAME.patch ──git apply──► a worktree of HEAD ──build──► its test ──► red?
//	                                 ▲                                   │
//	                                 └───────────git apply -R────────────┘
//
// Owner: whoever runs `make planted`; the package has tests only. Laws: a patch
// applies to the tree as it is, what it breaks still compiles, the named test
// fails with it and passes without.
package planted
