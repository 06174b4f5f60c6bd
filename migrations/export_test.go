package migrations

// For tests in packages that depend on packages that import this one.
var (
	SearchIndex = searchIndex
	IndexTitles = indexTitles
)
