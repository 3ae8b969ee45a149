// Package pluginpb is the border between the broker and a plugin on the wire:
// lockstep_plugin.proto and what protoc makes of it (`make generate-plugin`).
// Only plugins/sdk imports it.
package pluginpb
