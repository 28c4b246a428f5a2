<<sketch>>
