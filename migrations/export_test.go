package migrations

// For tests in packages that depend on packages that import this one.
var (
	SearchIndex = searchIndex
	IndexTitles = indexTitles
)

// SearchIndexName is the index that an installation may lack.
const SearchIndexName = searchIndexName
