package txn

// KeepPlans is a statement for transactions whose further statements find a few rows by an index,
// however large the table is. It changes settings of the planner until the end of the transaction. With
// them a session plans each of the further statements once, for all parameters and by indexes, whatever
// the statistics say, and keeps the plan until it ends. A kept plan costs a tenth of a new plan for each
// execution. Without these settings, a plan from when a table was empty would later read all of the table.
const KeepPlans = `
SELECT set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`
