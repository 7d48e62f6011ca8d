-- What settles every claim, simple or not. It is made when the first claim needs it, and so is each algorithm: the files from here to
-- the end of once.lua are one function.
--
-- An algorithm is a table of functions over a slot, which holds its state: `fresh` and `load` make one, `save` gives the numbers of
-- one that is packed with others, `store` the text of one that is not. The rest are those of the core.

local function general()

local function no_delay()
  return 0
end
