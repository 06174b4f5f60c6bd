package migrations

// SearchIndex is searchIndex, for tests in packages that depend on packages that import
// this one.
var SearchIndex = searchIndex
