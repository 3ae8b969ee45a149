// Package status holds the plain facts that the data plane measures and the
// control plane and its surfaces read. It is a leaf: data without behaviour, so
// that the two planes share words and never import each other.
package status
