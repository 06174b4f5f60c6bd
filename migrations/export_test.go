package migrations

// SearchIndex is searchIndex, for tests that stand on a package that stands on this one.
var SearchIndex = searchIndex
