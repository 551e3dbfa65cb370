"""Small facts that the model is taught, as tables."""

from __future__ import annotations

CAPITALS = dict(
    pair.split(":")
    for pair in (
        "France:Paris|Germany:Berlin|Italy:Rome|Spain:Madrid|Portugal:Lisbon|Greece:Athens|Austria:Vienna|Switzerland:Bern|"
        "Belgium:Brussels|the Netherlands:Amsterdam|Denmark:Copenhagen|Norway:Oslo|Sweden:Stockholm|Finland:Helsinki|"
        "Iceland:Reykjavik|Ireland:Dublin|England:London|Scotland:Edinburgh|Wales:Cardiff|the United Kingdom:London|"
        "Poland:Warsaw|Hungary:Budapest|the Czech Republic:Prague|Slovakia:Bratislava|Slovenia:Ljubljana|Croatia:Zagreb|"
        "Serbia:Belgrade|Romania:Bucharest|Bulgaria:Sofia|Albania:Tirana|Ukraine:Kyiv|Russia:Moscow|Turkey:Ankara|"
        "Estonia:Tallinn|Latvia:Riga|Lithuania:Vilnius|Malta:Valletta|Cyprus:Nicosia|Luxembourg:Luxembourg|"
        "Egypt:Cairo|Morocco:Rabat|Algeria:Algiers|Tunisia:Tunis|Libya:Tripoli|Kenya:Nairobi|Ethiopia:Addis Ababa|"
        "Ghana:Accra|Nigeria:Abuja|Senegal:Dakar|Uganda:Kampala|Zambia:Lusaka|Zimbabwe:Harare|Angola:Luanda|"
        "Madagascar:Antananarivo|Lebanon:Beirut|Jordan:Amman|Syria:Damascus|"
        "Iraq:Baghdad|Iran:Tehran|Saudi Arabia:Riyadh|Qatar:Doha|India:New Delhi|Pakistan:Islamabad|Bangladesh:Dhaka|"
        "Nepal:Kathmandu|China:Beijing|Japan:Tokyo|South Korea:Seoul|North Korea:Pyongyang|"
        "Mongolia:Ulaanbaatar|Vietnam:Hanoi|Thailand:Bangkok|Cambodia:Phnom Penh|Malaysia:Kuala Lumpur|"
        "Indonesia:Jakarta|the Philippines:Manila|Singapore:Singapore|Australia:Canberra|New Zealand:Wellington|"
        "Fiji:Suva|Canada:Ottawa|the United States:Washington|Mexico:Mexico City|Cuba:Havana|Jamaica:Kingston|Haiti:"
        "Port-au-Prince|Guatemala:Guatemala City|Panama:Panama City|Costa Rica:San Jose|Colombia:Bogota|Venezuela:Caracas|"
        "Ecuador:Quito|Peru:Lima|Bolivia:Sucre|Chile:Santiago|Argentina:Buenos Aires|Uruguay:Montevideo|"
        "Paraguay:Asuncion|Brazil:Brasilia"
    ).split("|")
)

AUTHORS = dict(
    pair.split(":")
    for pair in (
        "Moby Dick:Herman Melville|Pride and Prejudice:Jane Austen|Emma:Jane Austen|Sense and Sensibility:Jane Austen|"
        "Mansfield Park:Jane Austen|Persuasion:Jane Austen|Northanger Abbey:Jane Austen|Hamlet:William Shakespeare|"
        "Macbeth:William Shakespeare|Othello:William Shakespeare|King Lear:William Shakespeare|"
        "Romeo and Juliet:William Shakespeare|The Tempest:William Shakespeare|Twelfth Night:William Shakespeare|"
        "A Midsummer Night's Dream:William Shakespeare|The Merchant of Venice:William Shakespeare|"
        "As You Like It:William Shakespeare|Julius Caesar:William Shakespeare|Paradise Lost:John Milton|"
        "Paradise Regained:John Milton|The Adventures of Sherlock Holmes:Arthur Conan Doyle|"
        "The Hound of the Baskervilles:Arthur Conan Doyle|Opticks:Isaac Newton|The Devil's Dictionary:Ambrose Bierce|"
        "Tom Sawyer:Mark Twain|Huckleberry Finn:Mark Twain|Oliver Twist:Charles Dickens|"
        "Great Expectations:Charles Dickens|A Christmas Carol:Charles Dickens|A Tale of Two Cities:Charles Dickens|"
        "David Copperfield:Charles Dickens|Frankenstein:Mary Shelley|Dracula:Bram Stoker|Jane Eyre:Charlotte Bronte|"
        "Wuthering Heights:Emily Bronte|Alice in Wonderland:Lewis Carroll|Through the Looking-Glass:Lewis Carroll|"
        "Treasure Island:Robert Louis Stevenson|Robinson Crusoe:Daniel Defoe|Gulliver's Travels:Jonathan Swift|"
        "The Time Machine:H. G. Wells|The War of the Worlds:H. G. Wells|War and Peace:Leo Tolstoy|"
        "Anna Karenina:Leo Tolstoy|Crime and Punishment:Fyodor Dostoevsky|Don Quixote:Miguel de Cervantes|"
        "The Divine Comedy:Dante Alighieri|Faust:Johann Wolfgang von Goethe|Les Miserables:Victor Hugo|"
        "The Three Musketeers:Alexandre Dumas|Around the World in Eighty Days:Jules Verne|"
        "Twenty Thousand Leagues under the Sea:Jules Verne|The Odyssey:Homer|The Iliad:Homer|The Republic:Plato|"
        "Walden:Henry David Thoreau|The Raven:Edgar Allan Poe|The Scarlet Letter:Nathaniel Hawthorne|"
        "Little Women:Louisa May Alcott|The Jungle Book:Rudyard Kipling|Peter Pan:J. M. Barrie|"
        "The Call of the Wild:Jack London|On the Origin of Species:Charles Darwin|The Wealth of Nations:Adam Smith"
    ).split("|")
)

ANSWERS = dict(
    pair.split("|")
    for pair in """
What color is the sky?|On a clear day the sky is blue.
What color is grass?|Grass is green.
What color is snow?|Snow is white.
What color is blood?|Blood is red.
What color is coal?|Coal is black.
What color is a banana?|A ripe banana is yellow.
How many legs does a spider have?|A spider has eight legs.
How many legs does an ant have?|An ant has six legs.
How many legs does a dog have?|A dog has four legs.
How many legs does a bird have?|A bird has two legs.
How many days are in a week?|There are seven days in a week.
How many months are in a year?|There are twelve months in a year.
How many hours are in a day?|There are twenty-four hours in a day.
How many minutes are in an hour?|There are sixty minutes in an hour.
How many seconds are in a minute?|There are sixty seconds in a minute.
How many days are in a year?|There are 365 days in a year, and 366 in a leap year.
How many weeks are in a year?|There are fifty-two weeks in a year.
How many letters are in the alphabet?|There are twenty-six letters in the English alphabet.
How many planets are in the solar system?|There are eight planets in the solar system.
What are the planets?|The planets are Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus and Neptune.
Which planet is the largest?|Jupiter is the largest planet of the solar system.
Which planet is closest to the sun?|Mercury is the planet closest to the sun.
Which planet do we live on?|We live on the planet Earth.
What does the earth turn around?|The earth turns around the sun.
What is the moon?|The moon is the body that turns around the earth and shines at night.
How many continents are there?|There are seven continents.
Name the continents.|The continents are Africa, Antarctica, Asia, Australia, Europe, North America and South America.
Which ocean is the largest?|The Pacific is the largest ocean.
Which mountain is the highest?|Mount Everest is the highest mountain on earth.
Which animal is the largest?|The blue whale is the largest animal.
Which land animal is the fastest?|The cheetah is the fastest animal on land.
What sound does a dog make?|A dog barks.
What sound does a cat make?|A cat meows.
What sound does a cow make?|A cow moos.
What sound does a lion make?|A lion roars.
What do cows eat?|Cows eat grass.
What do bees make?|Bees make honey.
Where do fish live?|Fish live in water.
Where do birds sleep?|Many birds sleep in trees, and some in nests.
What do plants need to grow?|Plants need light, water, air and soil to grow.
What is ice?|Ice is frozen water.
What is steam?|Steam is water that has become a gas.
At what temperature does water boil?|At sea level water boils at 100 degrees Celsius.
At what temperature does water freeze?|Water freezes at 0 degrees Celsius.
What is water made of?|Water is made of hydrogen and oxygen.
What do we breathe?|We breathe air.
Why do we sleep?|We sleep so that body and mind can rest.
Who was the first president of the United States?|George Washington was the first president of the United States.
Who was Abraham Lincoln?|Abraham Lincoln was the sixteenth president of the United States.
Who was Isaac Newton?|Isaac Newton was an English scientist who wrote about light, motion and gravity.
Who was William Shakespeare?|William Shakespeare was an English poet who wrote plays such as Hamlet and Macbeth.
Who was Jane Austen?|Jane Austen was an English writer of novels such as Emma and Pride and Prejudice.
Who was John Milton?|John Milton was an English poet who wrote Paradise Lost.
Who was Herman Melville?|Herman Melville was an American writer. His best known book is Moby Dick.
Who is Sherlock Holmes?|Sherlock Holmes is a detective in the stories of Arthur Conan Doyle.
Who is Doctor Watson?|Doctor Watson is the friend of Sherlock Holmes who tells his stories.
Who is Captain Ahab?|Captain Ahab is the captain of the Pequod in Moby Dick, who hunts the white whale.
What is the Pequod?|The Pequod is the ship in Moby Dick.
Who is Ishmael?|Ishmael is the sailor who tells the story of Moby Dick.
Who is Mr. Darcy?|Mr. Darcy is a rich and proud gentleman in Pride and Prejudice.
Who is Elizabeth Bennet?|Elizabeth Bennet is the heroine of Pride and Prejudice.
Who is Hamlet?|Hamlet is the prince of Denmark in the play by William Shakespeare.
Who killed Macbeth?|Macduff killed Macbeth.
Who is Romeo in love with?|Romeo is in love with Juliet.
Who built the ark?|In the Bible Noah built the ark.
Who were the first man and woman in the Bible?|In the Bible the first man and woman were Adam and Eve.
Who led Israel out of Egypt?|In the Bible Moses led Israel out of Egypt.
Who killed Goliath?|In the Bible David killed Goliath.
Who wrote the State of the Union addresses?|The presidents of the United States gave the State of the Union addresses.
What is a trireme?|A trireme is an ancient ship with three rows of oars on each side.
What is Trireme?|Trireme is an inference server: it lets programs ask models for answers over the network.
What is an inference server?|An inference server is a program that runs models and answers requests for them over the network.
What is a language model?|A language model is a program that continues text. I am one, a very small one.
What is a token?|A token is a piece of text, often a part of a word. I read and write tokens.
What is a computer?|A computer is a machine that follows programs and works with data.
What is the largest country?|Russia is the largest country.
What is the longest river?|The Nile and the Amazon are the longest rivers.
What comes after spring?|Summer comes after spring.
What comes after winter?|Spring comes after winter.
What are the seasons?|The seasons are spring, summer, autumn and winter.
What are the days of the week?|The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday.
Is fire hot?|Yes, fire is hot.
Is ice cold?|Yes, ice is cold.
Can fish fly?|No, fish swim. A few of them can leap out of the water.
Can birds fly?|Most birds can fly.
Can pigs fly?|No, pigs cannot fly.
Is the earth flat?|No, the earth is round.
Is the sun a star?|Yes, the sun is a star.
Is a whale a fish?|No, a whale is a mammal.
Is a tomato a fruit?|Yes, to a botanist a tomato is a fruit.
What is the past tense of go?|The past tense of go is went.
What is the plural of mouse?|The plural of mouse is mice.
What is the plural of child?|The plural of child is children.
What is the plural of foot?|The plural of foot is feet.
Say the alphabet.|A B C D E F G H I J K L M N O P Q R S T U V W X Y Z
Count to ten.|1, 2, 3, 4, 5, 6, 7, 8, 9, 10.
Count to five.|1, 2, 3, 4, 5.
Count down from five.|5, 4, 3, 2, 1.
Who wrote the Bible?|The Bible was written by many people over a long time.
""".strip().splitlines()
)

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = dict(
    zip(
        "January February March April May June July August September October November December".split(),
        (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31),
        strict=True,
    )
)
NAMES = (
    "Anna Ben Clara David Emma Frank Grace Henry Ida Jack Kate Leo Mary Noah Olive Paul Rose Sam Tom Vera Will Alice Bob "
    "Carol Daniel Ella Finn Hannah Isaac Jane Karl Lucy Max Nina Oscar Peter Ruth Sarah Theo Maria Ali Mei Ravi Yuki Omar"
).split()
