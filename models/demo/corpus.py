"""Writes the stories the demo model learns from: short, warm, grammatical, in the words of a child's picture book.

Knows nothing of tokens or models (train.py is the only user). All sentences are our own; nothing is read from outside.
A story is an opening, one plot and an ending. Text is expanded from templates in three notations:

    [a|b|c]    one of the alternatives, which may be empty and may hold further brackets
    <key>      a word of this story (who, where, what: see Story) or, if the story has none, a phrase from PHRASES
    <Key>      the same with a capital letter

Who, where and what are drawn once for each story, so everything stays consistent to its end; the wording of every step is
drawn anew. That is what makes the text learnable by a small model and yet too varied to be learnt word for word.

    python models/demo/corpus.py [count] [seed]        prints stories
"""
import random
import re
import sys

GIRLS = "Lily Mia Anna Rosie Emma Lucy Sophie Clara Ella Nora Ruby Molly Grace Ivy Daisy Hannah Zoe Amy Sara Maya".split()
BOYS = "Tom Ben Sam Max Leo Jack Tim Noah Oliver Peter Henry Finn Oscar Theo Adam Billy Hugo Jacob Luke Danny".split()
ANIMAL_NAMES = {"she": "Poppy Hazel Willow Luna Pip Dot Honey Bella Maple Tilly".split(),
                "he": "Bruno Rusty Milo Toby Biscuit Button Pepper Gus Barney Coco".split()}
ANIMALS = {  # species -> homes
    "dog": ["in a wooden house near the barn", "in a cosy kennel by the garden gate"],
    "cat": ["in a quiet house at the end of the street", "on a farm with red roofs"],
    "rabbit": ["in a burrow under the old oak tree", "in a warm burrow at the edge of the meadow"],
    "fox": ["in a den under the roots of a tall tree", "in a den at the edge of the forest"],
    "bear": ["in a cave at the foot of the mountain", "in a cave near a waterfall"],
    "mouse": ["in a tiny hole behind the kitchen wall", "in a nest of straw in the old mill"],
    "squirrel": ["high up in a hollow tree", "in a nest at the top of a pine tree"],
    "hedgehog": ["under a pile of leaves in the garden", "in a hollow log beside the path"],
    "duck": ["in the reeds beside the pond", "on a small green island in the lake"],
    "frog": ["on a lily pad in the pond", "under a flat stone near the brook"],
    "turtle": ["beside a slow green river", "near the pond at the end of the lane"],
    "elephant": ["near a wide river", "on a sunny plain with tall grass"],
    "penguin": ["on an island of snow and ice", "beside the cold blue sea"],
    "pony": ["in a stable on the hill", "in a green field beside the mill"],
}
CHILD_HOMES = ["in a small house by the sea", "in a white house at the end of the lane", "in a little house on a hill", "on a farm near the river",
               "in a tall house in the middle of the town", "in a small village between two hills", "in a cottage at the edge of the forest"]
TALE_HOMES = ["in a castle on a green hill", "in a stone tower by the lake", "in a far land beyond the mountains", "in a small kingdom by the sea"]
TALE_HEROES = [("knight", "he"), ("knight", "she"), ("princess", "she"), ("prince", "he"), ("king", "he"), ("queen", "she"), ("dragon", "he"), ("dragon", "she"),
               ("fairy", "she"), ("robot", "he"), ("wizard", "he"), ("giant", "he"), ("pirate", "he"), ("sailor", "she")]
TRAITS = "kind brave curious cheerful shy clever gentle happy quiet playful friendly funny".split()
HELPERS = ["owl", "crow", "goat", "beaver", "deer", "mole", "swan", "goose", "badger", "donkey"]
HELPER_TRAITS = ["old", "wise", "friendly", "kind", "grey", "sleepy", "tiny", "big"]
COLOURS = "red blue yellow green white orange purple silver golden brown".split()
TOYS = ["ball", "kite", "teddy bear", "boat", "drum", "hat", "scarf", "toy train", "doll", "book", "whistle", "bucket", "balloon", "bell", "lantern", "button"]
PLACES = {
    "in the park": ["under the bench", "behind the slide", "beside the pond", "next to the swings", "near the fountain", "behind the tall hedge"],
    "in the forest": ["under a big oak tree", "behind a mossy rock", "beside the stream", "inside a hollow log", "among the ferns", "under a pile of leaves"],
    "on the beach": ["behind a big rock", "under a blue umbrella", "beside a pool of sea water", "near the old boat", "next to a heap of shells", "among the seaweed"],
    "in the garden": ["behind the roses", "under the apple tree", "beside the gate", "next to the watering can", "among the carrots", "near the little shed"],
    "on the farm": ["behind the barn", "under the hay", "beside the fence", "near the hen house", "next to the old tractor", "under the cart"],
    "in the meadow": ["in the tall grass", "beside the brook", "under a lonely tree", "behind a small hill", "among the daisies", "near the wooden bridge"],
    "at the market": ["under a table", "behind a basket of apples", "next to the flower cart", "beside the well", "near the bread stall", "behind a heap of pumpkins"],
}
FOODS = [("apples", "apple"), ("cookies", "cookie"), ("cherries", "cherry"), ("plums", "plum"), ("pears", "pear"), ("nuts", "nut"), ("strawberries", "strawberry"),
         ("carrots", "carrot"), ("buns", "bun"), ("pancakes", "pancake")]
BAKES = [("a", "apple pie", "it", "was"), ("a", "chocolate cake", "it", "was"), ("a", "carrot cake", "it", "was"), ("a", "loaf of bread", "it", "was"),
         ("some", "ginger cookies", "them", "were"), ("some", "blueberry muffins", "them", "were"), ("some", "honey buns", "them", "were")]
SKILLS = [  # what, how it goes wrong, the advice, how it goes well
    ("swim", "<He> splashed and kicked, but <he> went under again and again.", "Kick slowly and keep your chin up", "<he> kicked slowly and kept <his> chin up, and soon <he> was gliding across the water"),
    ("ride a bike", "The bike went left, then right, and then <hero> fell onto the grass.", "Look far ahead, and not down at the wheels", "<he> looked far ahead, and the bike rolled straight down the lane"),
    ("fly a kite", "The kite went up a little and came down again with a bump.", "Run against the wind and let the string out slowly", "<he> ran against the wind, and the kite climbed high into the sky"),
    ("whistle", "Only air came out, and there was no sound at all.", "Make your lips round and blow very softly", "<he> made <his> lips round and blew softly, and a clear, high note came out"),
    ("jump rope", "The rope got caught on <his> feet every time.", "Listen to the rope and jump when it taps the ground", "<he> listened to the rope and jumped ten times without a stop"),
    ("paint a horse", "The first horse looked like a potato with four legs.", "Look carefully first, and then paint one line at a time", "<he> painted one line at a time, and at last a fine brown horse stood on the paper"),
    ("play the flute", "The flute only went squeak, squeak, squeak.", "Blow softly and move one finger at a time", "<he> blew softly, and a sweet little song filled the air"),
    ("climb the tall tree", "<He> slid back down the trunk and landed on <his> bottom.", "Find a good place for one foot before you move the other", "<he> found a place for one foot, then for the other, and soon <he> sat on the highest branch"),
    ("dance", "<He> stepped on <his> own feet and tumbled over.", "Count to four and let the music carry you", "<he> counted to four, and <his> feet began to move with the music"),
    ("skip stones over the water", "Every stone sank with a loud plop.", "Choose a flat stone and throw it low", "<he> chose a flat stone and threw it low, and it jumped five times over the water"),
]
GIFTS = [  # what, how it is made
    ("necklace of shells", "<He> looked for the prettiest shells and put them on a long string."), ("crown of daisies", "<He> picked white daisies and tied them together in a ring."),
    ("little wooden boat", "<He> took a piece of wood and a bit of cloth and made a sail."), ("warm woolen scarf", "<He> found some soft wool and knitted all day long."),
    ("paper lantern", "<He> folded yellow paper and painted small stars on it."), ("painted stone", "<He> found a smooth, round stone and painted a smiling sun on it."),
    ("book of drawings", "<He> drew a new picture on each page and tied the pages together with a ribbon."), ("soft pillow", "<He> sewed two pieces of cloth together and filled them with feathers."),
]
PLANTS = [("sunflower", "a sunflower that was taller than the fence"), ("pumpkin", "a pumpkin so big that nobody could carry it alone"), ("rose", "a red rose that smelled sweet"),
          ("bean", "a green bean plant that climbed up to the roof"), ("strawberry", "a plant full of sweet strawberries"), ("tulip", "a bright red tulip"), ("melon", "a round, sweet melon")]
BABIES = [("duckling", "duck", "pond"), ("kitten", "cat", "barn"), ("lamb", "sheep", "green hill"), ("puppy", "dog", "mill"), ("chick", "hen", "hen house"), ("baby rabbit", "rabbit", "meadow"),
          ("baby squirrel", "squirrel", "tall pine tree"), ("foal", "horse", "stable"), ("baby hedgehog", "hedgehog", "old log")]
NOISES = [  # the sound, who makes it, why
    ("Scratch, scratch", "kitten", "wanted to come in from the cold"), ("Hoo, hoo", "baby owl", "could not find its nest"), ("Tap, tap, tap", "little bird", "had hurt its wing"),
    ("Squeak, squeak", "tiny mouse", "was stuck in an empty jar"), ("Rustle, rustle", "little hedgehog", "was looking for its supper"), ("Bump, bump", "puppy", "had lost its way in the dark"),
    ("Whoo, whoo", "young bat", "was caught in an old net")]
TREASURES = ["old silver coins", "shiny glass beads in every colour", "a golden bell", "a bag of seeds and a kind letter", "picture books with golden pages", "a music box that played a soft song"]
GAMES = ["hide and seek", "tag", "catch", "pirates", "a game of marbles", "shop"]

PHRASES = {
    "out": "[|||A white butterfly danced over the flowers.|The birds sang in the trees.|The grass was soft and green.|A cool wind moved the leaves.|Small clouds sailed across the sky.|"
           "The air smelled of flowers.|A bee hummed from flower to flower.|The sun felt warm on <his> face.|Everything was bright and quiet.]",
    "happy": "[was very happy|was full of joy|smiled from ear to ear|felt warm and happy inside|laughed out loud|jumped for joy|clapped and laughed]",
    "sad": "[felt very sad|was so sad that <he> began to cry|sat down and cried|felt a big tear roll down <his> cheek|did not know what to do]",
    "afraid": "[was afraid|was a little scared|felt <his> heart beat fast|began to shake|wanted to run away]",
    "thanked": "[\"Thank you so much!\" said <hero>.|\"Thank you!\" cried <hero>. \"You are so kind.\"|<Hero> thanked <phelper> again and again.|\"How can I ever thank you?\" asked <hero>. \"Just be kind to others,\" said <phelper>.]",
    "day": "[One <sky> [morning|day|afternoon],|One day,|One [morning|afternoon],|On a <sky> day,]",
    "soon": "[Soon,|After a while,|A little later,|Before long,]",
    "end": "[||The end.|And they all lived happily ever after.|And they were happy for a long, long time.]",
    "night": "[||The end.|It was the best day of all.|It was a day to remember.|That night, <hero> slept very well.|That night, <he> fell asleep with a smile.|"
             "When the moon came up, <hero> was already fast asleep.|What a wonderful day it had been!]",
    "hobby": "[sing songs|tell stories|look at the stars|pick flowers|run and jump|play <game>|watch the clouds|collect pretty stones|chase butterflies|splash in puddles|draw pictures|walk <in_place>]",
}

OPENINGS = """
[Once upon a time,|Once upon a time,|Once upon a time|Long ago,|A long time ago,|Once,] [there was|there lived] <a_hero>[ who lived <home>|. <He> lived <home>[| with <elder>]|]. <like>
[Once upon a time,|Once upon a time|Once] <a_hero> lived <home>[| with <elder>]. <like>
[There was once|There once was|There once lived] <a_hero>[ who lived <home>|]. <like>
[In a small village|In a quiet valley|In a land far away|Far, far away|At the edge of a big forest|Deep in the forest|By the blue sea|On a high hill] there lived <a_hero>. <like>
<Direct> lived <home>[| with <elder>]. <like>
<Direct> was [always|very|often] [happy|busy|hungry|curious|cheerful|kind to everyone]. [|<He> lived <home>.] <like>
<Direct> loved to <hobby>. [<He> lived <home>[| with <elder>].|<He> did it every day.|Nothing made <him> happier.|It was the best part of every day.]
<Direct> went to <place> [every day|almost every day|every week|as often as <he> could], because <he> loved to <hobby>. [|<He> lived <home>.]
<Direct> had [a small voice and big dreams|a warm bed and a kind heart|bright eyes and a warm smile]. [|<He> lived <home>.] <like>
~<Direct> woke up early and [looked out of the window|stretched|yawned|washed <his> face|ate a big breakfast]. [The sun was [shining|coming up].|It was going to be a good day.|The birds were already singing.] [|<He> wanted to <hobby>.]
~[The sun was shining, and|It was a <sky> morning, and|The sky was blue, and|The birds were singing, and|Everyone was still asleep, but] <a_hero> was [already|wide] awake. [|<He> lived <home>.] [|<like>]
~[One day|One <sky> morning], <a_hero> [woke up early|looked out of the window|sat in the sun|ate breakfast and sang a song]. [|<He> lived <home>.] [|<like>]
~<Direct> was [walking <in_place>|in a good mood|sitting in the sun] one <sky> morning. [|<He> lived <home>.] [|<like>]
<Pair> were [best|very good|the best of] friends. They [did everything together|played together every day|lived next to each other|liked to <hobby>]. [|<Hero> lived <home>.]
"""
# "~": a day has begun, so the plot must go on with that day. The last one names the friend, so it needs a plot with an old friend.

LIKE = ["<He> [loved|liked] to <hobby>[.| and to <hobby>.| all day long.]", "<He> was a very <trait> <noun>.", "Everyone liked <him>, because <he> was [kind|gentle|cheerful|always ready to help].",
        "More than anything, <he> loved to <hobby>.", "<He> had [bright|big|shining] eyes and a [big smile|kind heart|loud laugh].", "Every day <he> liked to <hobby>.", ""]

# One plot after "== name"; each line is a step; a line that starts with "?" is left out half the time.
PLOTS = """
== lost toy
<He> had <a_thing>[ that <he> loved more than anything| and took it everywhere|, and it was <his> favourite toy]. <day> <hero> [took <his> <thing> to <place>|went to <place> with <his> <thing>|carried the <thing> to <place> to play]. <out>
[<Hero> played and played. When it was time to go home|<He> ran after a butterfly and laughed. But when <he> turned round|<He> stopped for a moment to [pick a flower|drink some water|look at a snail]. When <he> looked again], the <thing> was gone. ["Oh no!" cried <hero>. "Where is my <thing>?"|"My <thing>!" cried <hero>. "It is not here!"] <He> <sad>.
<He> looked <spot1>, but [it was not there|there was nothing|there was only a snail]. <He> looked <spot2>, but [it was not there either|the <thing> was not there|<he> found only an old shoe]. [|"I will never find it," <he> said.]
[Then|Just then] <a_helper> came by. "[Why are you so sad|What is the matter|Why are you crying], <call>?" asked <helper>. "[I have lost my <thing>|I cannot find my <thing>|My <thing> is gone]," said <hero>. "[Do not worry|Do not cry|Cheer up]," said <helper>. "[We will look for it together|I will help you|Two pairs of eyes see more than one]."
?[They looked high and low.|They walked slowly and looked at everything.|They asked a bee and a butterfly, but nobody had seen it.] <out>
[At last|Suddenly|After a long time], <helper> [pointed <with_wing>|called out|stopped]. "[Look over there|I see something <colour>|There it is]!" <There>, <spot3>, [lay|was] the <thing>. [|It was a little dirty, but it was not broken.]
<Hero> <happy>. <He> [held the <thing> tight|picked up the <thing> and hugged it|danced around with the <thing>]. <thanked>
[From that day on, <hero> took good care of the <thing>. <end>|After that, <hero> never let the <thing> out of <his> sight. <end>|<Hero> and <helper> played with the <thing> until the sun went down. <night>|They went home together, and <hero> gave <helper> a piece of cake. <night>]
== new friend
But <hero> [had no one to play with|was sometimes lonely|had no friend]. <day> <he> went to <place> [all alone|by <himself>|with <his> <thing>]. <out>
<Spot1> <he> saw <a_friend>. <Friend> [was sitting all alone|looked very lonely|was drawing on the ground with a stick|did not say a word].
<Hero> [was a little shy|did not know what to say|waited for a moment], but then <he> said, "Hello! [My name is <nameorcall>.|I am <nameorcall>.|What is your name?]" "I am <fname>," said <friend>[ softly| with a small smile|]. "[I am new here|I do not know anyone here|I have no one to play with]."
"[Would you like to play with me|Shall we play <game>|Do you want to play <game> with me]?" asked <hero>. <Friend> [nodded|smiled|jumped up]. "Yes, please!" <fhe> said.
[They played <game>|They ran and laughed|They told each other funny stories|They built a little house of sticks] [until they were tired|all afternoon|for a long time]. <out>
?Then <hero> shared <his> [apple|bread|lunch|cookies] with <friend>, and they sat down <spot2>.
?<Friend> showed <hero> a secret place <spot3>. "[Only you and I know it|This is our place now|You may come here any time]," said <friend>.
When the sun went down, it was time to go home. "[Will you come again tomorrow|Can we play again tomorrow|Will you be my friend]?" asked <friend>. "[Of course|Yes, I will|I would love that]!" said <hero>.
[From that day on, they met every day|After that, <hero> was never lonely again|Now <hero> had a friend, and so did <friend>|And so <hero> and <friend> became best friends]. <end>
== storm
<day> <hero> and <pal> [went for a walk <in_place>|were playing <in_place>|went to <place> to look for pretty stones|went to <place> to play <game>]. <out>
?They were having so much fun that they did not look at the sky.
[Suddenly|But then|After a while], [the sky grew dark|big black clouds covered the sun|a cold wind began to blow]. [A drop of rain fell on <his> nose.|The first drops began to fall.|Then it began to rain hard.] "[A storm is coming|We must find a dry place|Look at those clouds]!" said <friend>.
[Crash! went the thunder.|There was a bright flash, and then the thunder rolled.|Boom! The thunder was very loud.] <Hero> <afraid>. "[Take my hand|Do not be afraid|Stay close to me]," said <friend>.
They ran as fast as they could, and [soon|not far away|at last] they found [a small hut|an old wooden house|a little shelter|an empty shed]. They [crept inside|hurried inside|went in] and sat close together.
["Let us sing a song," said <friend>. They sang so loudly that they could hardly hear the thunder.|"Let us tell stories," said <friend>. So they told each other stories about stars and ships.|"Let us count," said <hero>. They counted after each flash, and each time the thunder was farther away.]
<soon> the rain stopped. They looked out, and [there was a big rainbow in the sky|the sun was shining again|a bright rainbow stood over the hills]. "How beautiful!" said [<hero>|<friend>].
They jumped over the puddles all the way home. <Elder> [gave them hot soup|gave them warm milk with honey|dried them with a big towel|hugged them both]. "[I am so glad you are safe!|There you are at last!|Were you not afraid?]" said <elder>. "[We were together|We helped each other|A storm is not so bad with a friend]," said <hero>. <night>
== sharing
<day> <elder> gave <hero> a [big basket|bag|bowl] of <foods>. [They looked delicious.|They smelled so good.|They were <his> favourite food.] "[Enjoy them|They are all for you|Do not eat them all at once]," said <elder>.
<Hero> went to <place> and sat down <spot1>. <out> [|<He> ate one <food>, and it was very good.]
Just then <pal> came by. <Friend> [looked hungry|had had no breakfast|looked at the <foods> with big eyes]. "[May I have a <food>|Could I have just one|Will you give me one]?" asked <friend>.
[But <hero> did not want to share.|<Hero> held the <foods> close.|<Hero> shook <his> head.] "[No|Sorry]," <he> said. "[These are mine|They are all for me|I want to eat them all]." <Friend> [looked sad and walked away|said nothing and went away slowly|hung <fhis> head and left].
<Hero> ate another <food>, but it did not taste so good any more. [<He> felt bad inside.|<He> thought about <friend>.|It was no fun to eat alone.] ["That was not kind of me," <he> said.|"I should have shared," <he> thought.|"A friend is better than a <food>," <he> said.]
<He> [jumped up and ran after <friend>|took the <foods> and ran|hurried down the path]. "<Fname>, wait!" <he> called. "[I am sorry|Please forgive me]. [Come and eat with me|Half of them are for you|Let us share them]."
<Friend> <fhappy>. They sat down <spot2> and ate the <foods> together. [Now they tasted better than ever.|They laughed and talked until all were gone.|They saved the last <food> for <elder>.]
The next day, <friend> brought [some honey|a jar of jam|two sweet oranges|a big cake] and shared it with <hero>. "[Sharing makes everything taste better|That is what friends are for|We will always share]," said [<hero>|<friend>]. <end>
== baking
<day> <hero> [wanted to bake <a_bake>|had a good idea. "Let us bake <a_bake>," <he> said|asked <elder> to help <him> bake <a_bake>]. It was [the birthday of <pal>|a surprise for <pal>].
<Elder> [took out a big bowl|tied on an apron|brought flour, butter and eggs]. [Together they mixed flour, milk and eggs.|<Hero> broke three eggs, and only one fell on the floor.|<Hero> put the flour into the bowl, and a white cloud flew up.] ["You look like a snowman!" laughed <elder>.|Soon there was flour on <his> nose.|<He> stirred and stirred until <his> arm was tired.]
[But when <hero> tasted the dough, <he> made a face. "This is salt!" <he> cried. "I have mixed up the salt and the sugar."|But then the bowl slipped and fell to the floor with a crash. "Oh no!" cried <hero>.|But there was no sugar left in the house. "What shall we do now?" asked <hero>.]
"[Never mind|It does not matter|Do not worry]," said <elder>. "[We will try again|Everyone makes mistakes|We can use honey]." [So they began again, and this time it went well.|They worked together, and soon everything was ready.|<Hero> was very careful this time.]
They put <it> into the oven and waited. [The kitchen smelled wonderful.|<Hero> sat in front of the oven and watched.|They sang a song while they waited.|<Hero> washed all the spoons.] <soon> the <bake> <was> ready, golden and warm.
?<Hero> put [red berries|white sugar|little flowers|nuts] on top.
Then <he> carried <it> carefully to the house of <friend>. [Knock, knock!|<He> knocked three times.] <Friend> opened the door. "[Surprise|This is for you|I made this for you]!" said <hero>.
<Friend> <fhappy>. "[Nobody has ever baked for me before|It smells so good|You are the best friend in the world]!" <fhe> said. They [sat down at the table|called all the neighbours|cut it into pieces] and ate until [nothing was left|only a few crumbs were left|they were full]. <night>
== boat trip
<day> <hero> and <pal> [found a small <colour> boat|built a little boat out of wood|climbed into a <colour> boat]. "Let us sail [across the lake|to the island|down the river]!" said <hero>.
They took [some bread and cheese|a bottle of milk|a bag of <foods>] with them and pushed the boat into the water. The water was [clear and blue|quiet and green|full of little silver fish]. [A fish jumped.|A dragonfly sat down on the boat.|They waved to the ducks.]
?<Hero> put <his> hand into the water. "It is cold!" <he> laughed.
[But then the wind began to blow|But then a big wave came|But in the middle of the water the wind grew strong], and [the oar fell into the water|they lost their oar|the boat went round and round]. "[What shall we do now|How will we get home|Who will help us]?" cried <friend>. They <tsad>.
[Just then|At that moment], <a_helper> looked [down from the bank|over at them|out from the reeds]. "[I will help you|Hold on|Do not be afraid]!" called <helper>. <Helper> [threw them a long rope|brought a long branch and held it out|pushed a long stick to them].
"[Hold tight|Pull now]!" said <helper>. <Hero> and <friend> held on with all their might, and [slowly, slowly|little by little] the boat came to the shore. [They were wet but safe.|The boat bumped against the sand.]
"[Thank you|You saved us]!" said <hero> and <friend>. They shared [their lunch|everything they had] with <helper>, and they all sat in the sun until their feet were dry.
[On the way home, <friend> said, "Next time, we will take two oars."|"That was a real adventure," said <hero> on the way home.|"Tomorrow we will sail again," said <hero>, "but not so far."] <night>
== learning
<He> wanted to learn how to <skill>. [<Pal_cap> could do it very well.|Everyone else could do it.|It looked so easy.] <day> <hero> [tried for the first time|said, "Today I will learn it!"|went to <place> to try].
But it was [hard|not easy|harder than it looked]. <fail> ["I cannot do it," said <hero>.|"It is too hard for me," <he> said.|<Hero> wanted to give up.] <He> <sad>.
<Pal_cap> [saw it and came over|sat down beside <him>|did not laugh]. "[I could not do it at first either|Nobody can do it on the first day|You only need to practise]," said <friend>. "<tip>. [Try it once more|I will stay with you|I know that you can do it]."
<Hero> [took a deep breath|nodded|stood up again|dried <his> tears] and tried again. It was a little better[, but not good yet|]. <He> tried again the next day, and the day after that. ["Good!" said <friend>. "Do not stop now."|<Friend> clapped every time.|<Elder> watched and smiled.]
?It rained on the third day, but <hero> did not stop.
Then, [one morning|on the fifth day|at last], it happened: <win>. "[I can do it|Look at me|I did it]!" <he> shouted.
<Friend> <fhappy>. "[I knew you could do it|You did not give up|You learned it all by yourself]!" <fhe> said. <Elder> [was very proud|came out to see it|clapped too].
[Now <hero> could <skill> every day|The next week, <hero> showed a little mouse how to <skill>|Since then, when something is hard, <hero> says, "I just need to practise"|And when something was hard, <hero> always tried once more]. <end>
== brave
One [dark|windy|cold|quiet] night, <hero> [lay in bed and could not sleep|woke up and heard a strange sound|was just about to fall asleep]. "<noise>!" [it went outside|came from behind the door|it went in the dark]. <Hero> <afraid>.
"[What is that|Who is there]?" <he> whispered. [Nobody answered.|It was quiet for a moment. Then it came again: "<noise>!"] ["Is it a monster?"|"Maybe it is a ghost,"|"It must be something very big,"] <he> thought.
<He> pulled the blanket over <his> head. But the sound did not stop. ["I must be brave," <hero> said to <himself>.|"I want to know what it is," <he> said at last.|Then <he> thought of <elder>, who was never afraid.]
So <he> [lit a small lamp|took a lantern|picked up a candle] and [opened the door very slowly|walked on tiptoe to the door|went outside step by step]. [The stars were bright.|The wind moved the trees.|The floor was cold under <his> feet.|<His> heart went thump, thump, thump.]
There, [in the light of the lamp|on the step|under the window], sat a <baby>. It was [small and cold|very small and shaking|more afraid than <hero> was]. It <why>. "[Oh, it is only you!|You poor little thing!|Did you make that sound?]" said <hero>, and <he> was not afraid any more.
[Very gently,|Slowly and carefully,] <hero> [picked up the <baby>|helped the <baby>|took the <baby> in <his> arms] and [gave it something to eat|made it a soft bed in a box|wrapped it in a warm towel]. The <baby> looked at <him> with big, shining eyes.
In the morning, <elder> came and saw the <baby>. "[You were very brave|That was a brave and kind thing to do|And you went out all alone]," said <elder>. "[I was afraid at first|I was scared|My knees were shaking]," said <hero>, "but [I went anyway|it was even more afraid than I was|then I was glad that I went]."
[The <baby> stayed and became a good friend|Later they took the <baby> back to its family|From then on, <hero> was not afraid of the dark]. <end>
== planting
<day> <elder> gave <hero> a [tiny|small brown|little] seed. "[What is this|What will it be]?" asked <hero>. "[Plant it and wait|It is a <plant> seed|You will see]," said <elder>.
<Hero> dug a hole [in the garden|beside the fence|near the window] and put the seed inside. Then <he> [gave it some water|covered it with soft earth|said good night to it]. [|A robin watched from the gate.]
The next morning, <he> ran outside. But there was nothing to see. ["Why does it not grow?" <he> asked.|"Maybe it is asleep," <he> said.|<He> was disappointed.] "[Be patient|Good things take time|Give it water and sun]," said <elder>.
So <hero> [gave it water every day|watered it every morning|came every day with the watering can]. [It rained, and the sun shone.|A week went by, and then another week.] [Sometimes <he> sang a song to it.|Sometimes <pal> came and watered it too.|<He> pulled out all the weeds.]
Then, one morning, there was a tiny green leaf. "[It is growing|Look, look|It is awake]!" shouted <hero>, and <he> <happy>. Every day it grew a little [more|taller|bigger].
?One day a hungry snail came and wanted to eat the leaves. "Please do not eat my plant," said <hero>, and <he> gave the snail some salad.
When summer came, there was <grown>. [<Hero> could hardly believe it.|Everyone came to look at it.|It was the most beautiful thing in the garden.] "[You took good care of it|See what a little seed can do|You were very patient]," said <elder>.
<Hero> [showed it to everyone|showed it to all <his> friends|was very proud], and [kept the new seeds for next year|in the autumn <he> found new seeds in it|put one seed in a box for next spring]. <end>
== lost baby
<day> <hero> was walking <in_place> when <he> heard a small voice. [<Spot1> sat a <baby>.|A <baby> sat <spot1>.] It [was crying|looked lost|was all alone]. "[I cannot find my mother|I have lost my mother|I want my mother]," said the <baby>.
"[Do not cry|Do not be afraid|Come with me]," said <hero>. "[We will find her|I will help you|I am sure she is looking for you]." <He> [took the <baby> gently by the hand|carried the <baby>|let the <baby> walk close beside <him>]. <out>
First they met <a_helper>. "Have you seen the mother of this <baby>?" asked <hero>. "[No, I am sorry|Not today]," said <helper>. "[But try the <babyplace>|But I heard someone calling near the <babyplace>|But I think she lives near the <babyplace>]."
[The way was long.|They walked over a bridge and up a little hill.|They walked past a mill and through a gate.] The <baby> grew [tired|hungry], so <hero> [sang it a song|gave it a piece of bread|told it a funny story].
?"Is it still far?" asked the <baby>. "Only a few more steps," said <hero>.
At last they came to the <babyplace>. [A <mother> was running up and down.|There stood a worried <mother>.] "[Where are you, my little one|Where is my baby]?" she called. "Mother!" cried the <baby>, and it ran to her as fast as it could.
The <mother> [hugged her <baby>|held her <baby> close|kissed her <baby> again and again]. "[Thank you, dear friend|You brought my baby back|How kind you are]," she said to <hero>. "[You may visit us any time|Come and eat with us|We will never forget it]."
<Hero> <happy>. [They all had supper together.|The <baby> waved until <hero> was out of sight.|The <baby> gave <him> a [red|yellow|white] flower.] [On the way home, <he> sang a little song.|Then <he> went home to <elder> and gave <elder> a big hug.|It feels good to help.] <night>
== the gift
It was almost the birthday of <pal>. <Hero> wanted to give <friend> [something special|a nice present|something lovely], but <he> [had no money|did not have any money|had only one small coin].
<day> <he> walked through [the town and looked into all the windows|the market and looked at everything]. [There were drums and dolls and shiny bells.|There was a golden bell, but it cost too much.] <Hero> <sad>.
"[Why do you look so sad|What is wrong|What are you thinking about]?" asked <elder>. "[I have no present for <friend>|I cannot buy a present for <friend>]," said <hero>. "[The best presents are made with love|You could make something yourself|Not every present must be bought]," said <elder>.
That was a good idea! <Hero> [sat down at the table|thought for a long time|went to work at once]. "I will make a <gift>," <he> said. <make> [It took the whole day.|It was not easy, but <he> did not give up.|<He> worked until the sun went down.]
?One part broke, and <he> had to start again. [But the second one was even better.|"Never mind," <he> said.]
[On the day of the birthday|The next day|At the party], there were many big presents. <Hero> [held the <gift> behind <his> back|was a little shy|waited until the end]. "[It is only a small thing|I made it myself|This is for you]," <he> said.
<Friend> opened the paper and saw the <gift>. [For a moment <fhe> said nothing.|<Friend> <fhappy>.] "[You made this for me|It is beautiful|This is the best present of all]!" <fhe> said. "[I will keep it forever|I will always keep it|Thank you, <call>]."
Then they [ate cake|danced|played <game>] [until the stars came out|all afternoon], and <friend> [never put the <gift> down|showed the <gift> to everyone]. <end>
== snow
<day> <hero> looked outside. Everything was white! "[It is snowing|Snow|Look at all the snow]!" <he> shouted. <He> put on <his> [warm coat|thick boots|woolen scarf] and ran to <pal>.
"Let us build a snowman!" said <hero>. They [rolled a big ball|pushed the snow together|rolled one big ball and one small ball]. [The snow was soft and cold.|Their noses turned red.|White flakes fell on their heads.] They took two stones for the eyes and a carrot for the nose.
?<Hero> put <his> own hat on the head of the snowman. "Now he will not be cold," <he> said.
But the next morning, the [carrot|nose] was gone! "[Who took the nose|Where is the nose]?" asked <friend>. [There were small footprints in the snow.|<Hero> saw tiny footprints.] "Let us follow them," said <hero>.
The footprints went [over the hill|through the garden|along the fence] and stopped at a little hole. Inside sat a [thin grey rabbit|hungry little rabbit]. "[I am sorry|Please do not be angry]," said the rabbit. "[I was so hungry, and everything is under the snow|I could not find any food in the snow]."
<Hero> and <friend> looked at each other. "[You may keep the carrot|Do not worry]," said <hero>. "[We have more at home|Nobody should be hungry in winter]." They ran home and brought [apples and bread|a whole basket of carrots|nuts and salad].
The rabbit [was so happy that it danced in the snow|ate and ate|thanked them again and again]. And for the snowman they found [a red berry|a pine cone|an old button] as a new nose. It looked [very funny|even better].
[Then they went inside and drank hot milk with honey.|In the evening they sat by the fire and were warm.|All winter long they took food to the rabbit.] <end>
== the truth
<day> <hero> was playing with <a_ball> inside the house. "[Please play outside|Be careful in here]," <elder> had said. But <hero> [forgot about it|threw the ball one more time|did not listen].
Crash! The ball hit the [blue vase|big jug|flower pot|teapot], and it fell to the floor and broke. <Elder> [loved it very much|had had it for many years]. <Hero> <afraid>.
[<He> picked up the pieces and hid them under the bed.|<He> pushed the pieces under the carpet.|<He> put the pieces into a box and closed it.] "[Maybe nobody will see it|Nobody must know]," <he> thought. But <he> [could not eat <his> lunch|felt bad all day|had a heavy feeling inside].
<Pal_cap> came to play, but <hero> did not want to play. "[What is wrong|Why are you so quiet]?" asked <friend>. So <hero> told <friend> everything. "[You should tell the truth|Tell <elder> what happened]," said <friend>. "[It is hard, but you will feel better|I will come with you]."
<Hero> [took a deep breath|waited until supper|went slowly into the kitchen]. "[I broke it with my ball|I did something bad]," <he> said to <elder>. "[I am very sorry|I am sorry that I hid the pieces]." [A tear fell on the table.|<He> looked at the floor.]
<Elder> was quiet for a moment. Then <elder> [smiled|gave <him> a hug|sat down beside <him>]. "[Thank you for telling me the truth|It was brave of you to tell me|I am sad that it is broken, but I am glad that you told me]," said <elder>. "Things can be [fixed|mended]."
Together they found the pieces and [glued them one by one|put them together with glue]. [It had many thin lines now, but it was still pretty.|One piece was missing, so they painted a star there.]
<Hero> felt [light and happy again|much better]. And after that, <he> always played with the ball outside. <end>
== lost in the woods
<day> <hero> saw a beautiful <colour> butterfly. "[Wait for me|How pretty you are]!" <he> called, and <he> ran after it. [Over the hill and through the trees <he> ran.|It flew on and on, deep into the forest.]
When the butterfly was gone, <hero> looked around. [All the trees looked the same.|<He> did not know this place.|There was no path any more.] "[Where am I|Which way is home]?" <he> said. It grew dark, and <he> <afraid>.
<Hero> sat down [on a fallen tree|on a stone|under a big tree] and <sadshort>. Then a voice said, "[Who is crying in my forest|Who is there]?" It was <a_helper>. "[I am lost|I cannot find my way home]," said <hero>. "I live <home>."
"[I know that place|That is not so far]," said <helper>. "[Follow the little stream|Follow the brightest star|Go to the old bridge first], and [I will go with you|I will show you the way]." <Hero> dried <his> eyes and stood up.
They walked for a long time. [The moon shone through the leaves.|Little lights danced between the trees.|The forest was quiet, and the leaves were soft under their feet.] [<Helper> told <him> the names of the stars.|<Helper> hummed an old song.] <Hero> was not so afraid any more.
?"What is that light?" asked <hero>. "That is a firefly," said <helper>. "It is going home too."
At last <he> saw [a light in a window|a small light far away|<his> own home]. <Elder> was standing outside and calling. "[I am here|Here I am]!" cried <hero>, and <he> ran [as fast as <he> could|into the arms of <elder>].
"[I was so worried|I looked for you everywhere]," said <elder>. "[I will never run so far away again|I am sorry]," said <hero>. "[A friend showed me the way|The kind <helpernoun> brought me home]." They thanked <helper> and had [warm soup|hot milk and bread] together. <night>
== the race
<day> there was a big race <in_place>. [Everyone came to watch.|All the neighbours came.|There was a <colour> ribbon for the winner.] <Hero> [wanted to win|had practised for weeks|was very fast]. <Pal_cap> was in the race too.
"Ready, steady, go!" [called <a_helper>|cried <a_helper>], and off they went. [<Hero> ran as fast as the wind.|At first <friend> was in front, but soon <hero> was faster.|They ran over the bridge and up the hill.] <Hero> was first!
But then <he> heard a cry behind <him>. <Friend> had fallen [over a stone|into a ditch|and hurt <fhis> foot]. "[Ouch|My foot]!" cried <friend>. All the others ran past and did not stop.
<Hero> looked at the end of the race. It was [so near|only a few steps away]. Then <he> looked at <friend>. ["A friend is more important than a ribbon," <he> thought.|<He> knew what <he> had to do.] <He> turned round and ran back.
"[Are you hurt|Lean on me|Let me help you]," said <hero>. "[But you will lose the race|You could have won]," said <friend>. "[That does not matter|There will be another race]," said <hero>. <Slowly> they walked to the end, side by side.
They were the very last. But [everybody clapped and cheered|everyone stood up and cheered]. [The winner came and gave the ribbon to <hero>. "You should have it," the winner said.|<The_starter> said, "Today the prize is for the kindest runner," and gave <hero> a golden ribbon.]
<Hero> <happy>. <He> [cut the ribbon in two and gave one half to <friend>|put the ribbon around <friend> and around <himself>]. "[We won together|Now we are both winners]," <he> said. <night>
== the dragon
<day> the people of the village were very afraid. "There is a dragon on the [hill|mountain]!" they said. "[It roars all night|We hear it every night|It makes smoke and noise]." Nobody wanted to go there. "I will go," said <hero>.
<Hero> took [a lantern and some bread|a long rope and a bag of <foods>|a little bell] and walked up the [hill|steep path]. [The wind was cold.|The stones were hard and sharp.|A crow called from a tree.] <He> <afraid>, but <he> did not turn back.
At the top there was a [dark cave|big cave]. "Roar!" [it came from inside|said a deep voice]. <Hero> [held <his> breath|stood very still] and then called, "Hello! [Who is there|Why are you roaring]?"
A big green dragon looked out. But it did not look angry. It looked sad. [A big tear fell on the stones.|It hung its head.] "[I have a thorn in my foot|My tooth hurts so much|My foot hurts so much]," said the dragon. "[That is why I roar|I do not want to scare anyone]."
"Poor dragon," said <hero>. "[I will help you|Let me see]." [Very carefully,|Gently,] <he> [washed the sore place with warm water|put a cool leaf where it hurt|put some honey where it hurt and sang a song]. <soon> the dragon smiled. "[Now I feel much better|You are not afraid of me]," it said.
"[Come with me to the village|You need friends]," said <hero>. At first the people [hid behind their doors|ran away]. "[Do not be afraid|The dragon is kind]," said <hero>. "It only needs a friend." One by one they came out.
From that day on, the dragon [lit the lamps of the village every evening|baked the bread with its hot breath|let the children ride on its back], and everyone was [glad|happy]. And <hero> and the dragon [were the best of friends|went flying every Sunday]. <end>
== treasure map
<day> <hero> found an old map [in a bottle|under the floor|inside a dusty book|in a box in the attic]. There was a big red cross on it. "[It is a treasure map|There must be a treasure]!" <he> said. <He> ran to <pal> and showed <fhim> the map.
"First we must go to <place>," said <friend>, and so they did. <out> Then they had to walk [ten|twenty|thirty] steps to the [left|right]. [They counted each step out loud.|"One, two, three," counted <hero>.] There they found [an arrow made of stones|a sign with a star on it].
The arrow pointed to a place <spot1>. [They looked, and there was a small key.|<Hero> reached down and found a rusty key.] "What is this key for?" asked <friend>. "[We will see|For the treasure, I think]," said <hero>.
?Suddenly it began to rain, but they did not want to stop. They put on their hats and went on.
Next, the map led them to a [corner|place] <spot2>. They dug and dug with [their hands|a small spade|a flat stone]. [Their hands became very dirty.|It was hard work.] Then there was a sound: clonk! It was [a wooden box|an old chest|an iron box].
The key fitted. [Slowly|Click! Very slowly,] they opened the lid. Inside there were <treasure>. [Their eyes grew big.|"Oh!" they both said.] There was a note too: "[For the one who can share it|The real treasure is a good friend|Share me and be happy]."
<Hero> and <friend> looked at each other and smiled. They [shared everything with the whole village|took it home and shared it with <elder>|kept half and gave the other half to those who had little]. ["The best part was to look for it together," said <friend>.|"Where shall we look next?" asked <hero>.] <night>
== helping hands
Next to <hero> lived <an_old_neighbour>. <day> <hero> saw that <neighbour> was [very tired|sweeping leaves and had to sit down|carrying a heavy bag]. "[Can I help you|Let me help you|May I help]?" asked <hero>. "[That would be very kind|My back hurts today]," said <neighbour>.
So <hero> [swept the leaves|carried the heavy bag up the steps|brought wood for the fire]. Then <he> [watered the flowers|fed the hens|washed the windows]. [It was hard work|The sun was hot], but <he> did not stop. <out>
?"Why are you working so hard?" asked <pal>, who was passing by. "Because it makes someone happy," said <hero>. Then <friend> helped too, and they were soon finished.
But when <neighbour> wanted to drink tea, <nhe> [could not find <nhis> <nlost>|had lost <nhis> <nlost>]. "[I had <nit> this morning|Oh dear|I am always losing things]," said <neighbour>. <Hero> looked in the kitchen and behind the door, and then <he> looked <homespot>. "[Here!|I have found <nit>!|Are you looking for <nlost_this>?]" <he> called.
"What would I do without you?" said <neighbour>. <Nhe> [cut a big piece of cake for <him>|gave <him> a jar of red jam|told <him> a story about the old days|taught <him> a song]. [It was the best <hero> had ever had.|<Hero> said thank you.|They sat by the fire and talked.]
In the evening, <hero> told <elder> about the day. "I am proud of you," said <elder>. "[A kind heart is worth more than gold|Helping others makes two people happy]." <Hero> thought about this and smiled. The next day, <he> [went there again|took some flowers to <neighbour>]. <end>
== sick friend
<day> <hero> went to see <pal>. But <friend> [was not outside|did not want to play]. <Fhe> was in bed with a [fever|cold|bad cough]. "[I feel so weak|My head hurts]," said <friend>[ in a small voice|]. <Hero> was worried.
"What can I do?" <he> asked <elder>. "[Warm soup is good for a cold|Kind words are the best medicine]," said <elder>. So they [cooked a pot of soup with carrots|made hot soup and tea with honey]. <Hero> also [picked some [red|blue|white] flowers|drew a funny picture|took <his> favourite book].
<He> carried everything to <friend>. [The pot was hot, so <he> walked slowly.|On the way <he> met <a_helper>, who gave <him> a [red|yellow|white] flower.] "[Look what I have brought|Here is something for you]," said <hero>.
<Friend> ate the soup. "[That is good|It makes me warm inside]," <fhe> said. Then <hero> [read a story|told a funny story about a <helpernoun> that wanted to fly|sang all the songs that <he> knew], and <friend> [laughed a little|smiled for the first time that day]. [Then <friend> fell asleep.|Outside, it began to rain softly.]
?<Hero> came back the next day, and the day after that. Each time <friend> was a little better.
After [three days|a week], there was a knock on the door. It was <friend>! "[I am well again|Look, I can run again]!" said <friend>. "[Your soup made me strong|You are the best doctor]." <Hero> <happy>.
They went to <place> and played <game> [until evening|all day]. [And when <hero> had a cold in the winter, <friend> brought soup to <him>.|"When you are sick, I will come to you too," said <friend>.] <end>
== the star
Every night <hero> looked at the sky, and there was one star that <he> loved the most. <day> <hero> said, "[Tonight I want to visit my star.|I wish I could hold a star in my hand.|How far away is the star?]" "[Stars are very far away|It is too high for us]," said <elder>, "but you can always [look at it|say good night to it]."
That evening, <hero> climbed up the highest hill. [The grass was wet and cool.|Down in the valley the lights went out one by one.] <Hero> stretched out <his> arms, but the star was still too high. <He> <sad>.
Then <he> saw a [small|tiny] light [in the grass|beside a stone|under a leaf]. It was not a star. It was a firefly with a [tired|hurt] wing. "[Please help me|I cannot fly home]," said the firefly. "[My family is waiting by the lake|My friends are all by the lake]."
<Hero> [let it sit on <his> hand|took the firefly gently in both hands|let it sit on <his> nose] and carried it down to the lake. [It shone like a little lamp and showed <him> the way.|It was warm and bright.] "[You are kind|Thank you for carrying me]," said the firefly. "[Now close your eyes|Now I will show you something]."
When <hero> opened <his> eyes, hundreds of fireflies rose into the air. They danced over the water, up and down. In the lake <he> could see all the stars of the sky. It looked as if the stars had come down to [play|visit <him>].
"[You brought me the stars|It is so beautiful]," whispered <hero>. <He> put one finger into the water, just where <his> star was. ["Now I have touched it," <he> said.|The star danced on the little waves.]
Then <he> went home and told <elder> everything. And every summer <he> [came back to the lake to dance with the fireflies|visited the fireflies by the lake]. <end>
"""


def parse_plots():
    plots = {}
    for block in PLOTS.strip().split("== ")[1:]:
        name, *steps = block.strip().split("\n")
        plots[name] = steps
    return plots


PLOT_STEPS = parse_plots()
OPENING_LINES = OPENINGS.strip().split("\n")
HIS = {"he": ("him", "his", "himself"), "she": ("her", "her", "herself")}
INNERMOST = re.compile(r"\[([^\[\]]*)\]")
KEY = re.compile(r"<(\w+)>")


class Character:
    """Someone with a species and perhaps a name, and all the ways to speak of them."""

    def __init__(self, rng, noun, he, name, trait, little):
        self.rng, self.noun, self.he, self.name, self.trait, self.little = rng, noun, he, name, trait, little
        self.him, self.his, self.himself = HIS[he]

    def first(self):
        return f"a {self.trait} {self.noun}" + (f" named {self.name}" if self.name else "")

    def full(self):
        if not self.name:
            return f"the {self.trait} {self.noun}"
        return f"{self.name} the {self.noun}" if self.little else self.name

    def again(self):
        """A person is called by name; an animal sometimes by its kind."""
        if self.name and (not self.little or self.rng.random() < 0.8):
            return self.name
        return f"the {self.rng.choice(['', 'little '])}{self.noun}"


def child(rng):
    he = rng.choice(["he", "she"])
    noun = rng.choice(["little ", "young ", ""]) + ("girl" if he == "she" else "boy")
    return Character(rng, noun, he, rng.choice(GIRLS if he == "she" else BOYS), rng.choice(TRAITS), little=False)


def animal(rng, not_species=(), named=0.75):
    he = rng.choice(["he", "she"])
    noun = rng.choice([a for a in ANIMALS if a not in not_species])
    name = rng.choice(ANIMAL_NAMES[he]) if rng.random() < named else None
    return Character(rng, noun, he, name, rng.choice(TRAITS + ["little"] * (6 if name else 12) + ["small"] * 3), little=True)


def tale_hero(rng):
    noun, he = rng.choice(TALE_HEROES)
    names = GIRLS if he == "she" else BOYS
    return Character(rng, noun, he, rng.choice(names) if rng.random() < 0.7 else None, rng.choice(TRAITS + ["brave"] * 6 + ["young"] * 3), little=True)


class Story:
    """The facts of one story and the expansion of templates with them."""

    def __init__(self, rng):
        self.rng = rng
        self.plot = rng.choice(list(PLOT_STEPS))
        self.facts = {}
        self.friend_is_known = False
        self.draw_characters()
        self.draw_things()

    def draw_characters(self):
        rng = self.rng
        kind = rng.choices(["child", "animal", "tale"], [5, 4, 2 if self.plot != "the dragon" else 6])[0]
        while True:
            hero = {"child": child, "animal": animal, "tale": tale_hero}[kind](rng)
            if self.plot != "the dragon" or hero.noun != "dragon":
                break
        while True:
            friend = child(rng) if kind == "child" and rng.random() < 0.5 else animal(rng, (hero.noun,), named=1.0)
            if friend.name != hero.name and (friend.he != hero.he or rng.random() < 0.3):  # two "he" are harder to follow
                break
        self.hero, self.friend, self.kind = hero, friend, kind
        if kind == "tale":
            elder = rng.choice(["the old cook", "the wise gardener", "the kind old teacher"])
        else:
            elder = hero.his + " " + rng.choice(["mother", "mother", "father", "grandmother", "grandfather"])
        home = rng.choice({"child": CHILD_HOMES, "tale": TALE_HOMES}.get(kind) or ANIMALS[hero.noun])
        helper = rng.choice(HELPERS)
        neighbour = rng.choice(["man", "woman"])
        lost, lost_it, lost_this = rng.choice([("glasses", "them", "these"), ("keys", "them", "these"), ("hat", "it", "this"), ("cup", "it", "this")])
        nhe = "he" if neighbour == "man" else "she"
        self.facts.update(
            he=hero.he, him=hero.him, his=hero.his, himself=hero.himself, trait=rng.choice(TRAITS), noun=hero.noun.split()[-1], a_hero=hero.first(),
            call=hero.name or f"little {hero.noun}", nameorcall=hero.name or f"the {hero.noun}", home=home, elder=elder,
            fhe=friend.he, fhim=friend.him, fhis=friend.his, fname=friend.name, a_friend=friend.first(),
            a_helper=f"a {rng.choice(HELPER_TRAITS)} {helper}", helper=f"the {helper}", helpernoun=helper, phelper=f"the {helper}", the_starter=f"the {helper}",
            with_wing=rng.choice(["ahead", "to one side", "down"]),
            an_old_neighbour=f"an old {neighbour} with [white hair|a grey cat|a small garden]", neighbour=f"the old {neighbour}", nlost=lost, nit=lost_it, nlost_this=lost_this, nhe=nhe, nhis=HIS[nhe][1])

    def draw_things(self):
        rng = self.rng
        in_place, spots = rng.choice(list(PLACES.items()))
        spots = rng.sample(spots, 3)
        colour, toy = rng.choice(COLOURS), rng.choice(TOYS)
        article, bake, it, was = rng.choice(BAKES)
        foods, food = rng.choice(FOODS)
        skill, fail, tip, win = rng.choice(SKILLS)
        gift, make = rng.choice(GIFTS)
        plant, grown = rng.choice(PLANTS)
        baby, mother, baby_place = rng.choice(BABIES)
        noise, noise_maker, why = rng.choice(NOISES)
        winter = self.plot == "snow"
        self.facts.update(
            in_place=in_place, place=in_place.split(" ", 1)[1], spot1=spots[0], spot2=spots[1], spot3=spots[2], there="there",
            colour=colour, a_thing=f"a {colour} {toy}", thing=f"[{toy}|{toy}|{colour} {toy}]", a_ball=f"a {colour} ball",
            a_bake=f"{article} {bake}", bake=bake, it=it, was=was, foods=foods, food=food, skill=skill, fail=fail, tip=tip, win=win,
            gift=gift, make=make, plant=plant, grown=grown, babyplace=baby_place, mother=mother, baby=noise_maker if self.plot == "brave" else baby,
            noise=noise, why=why, treasure=rng.choice(TREASURES), game=rng.choice(GAMES),
            sky="[cold|white|snowy|cold winter]" if winter else "[sunny|bright|warm|fine|beautiful|quiet]", slowly="[slowly|step by step],",
            fhappy=PHRASES["happy"].replace("<his>", "<fhis>"), tsad="[were afraid|did not know what to do|held on to each other]",
            sadshort="[began to cry|cried a little|was very sad]", homespot=rng.choice(["under the chair", "in the basket", "behind the clock", "beside the lamp"]))

    def lookup(self, key):
        low = key[0].lower() + key[1:]
        if low == "hero":
            text = self.hero.again()
        elif low == "direct":
            hero = self.hero
            unnamed = [f"the {hero.trait} {hero.noun}", f"a {hero.trait} {hero.noun}"]
            text = self.rng.choice(unnamed if not hero.name else [hero.name] * 3 + [hero.first()] if self.kind == "child" else [hero.first()] * 2 + [hero.full()])
        elif low == "friend":
            text = self.friend.again()
        elif low == "pair":
            self.friend_is_known = True
            text = f"{self.hero.full()} and {self.friend.full()}"
        elif low in ("pal", "pal_cap"):  # an old friend: explained where first named
            text = self.friend.name if self.friend_is_known else f"{self.hero.his} [friend|good friend] {self.friend.full()}"
            self.friend_is_known = True
        elif low == "like":
            text = self.rng.choice(LIKE)
        else:
            text = self.facts.get(low) or PHRASES[low]
        text = self.expand(text)
        return text[:1].upper() + text[1:] if key[0].isupper() else text

    def expand(self, text):
        """Choices first, so that words are looked up only where they are used, and from left to right."""
        while INNERMOST.search(text):
            text = INNERMOST.sub(lambda m: self.rng.choice(m.group(1).split("|")), text)
        return KEY.sub(lambda m: self.lookup(m.group(1)), text)

    def write(self):
        steps = [s.lstrip("?") for s in PLOT_STEPS[self.plot] if not s.startswith("?") or self.rng.random() < 0.5]
        knows_friend = "<pal" in " ".join(steps).lower()
        fits = [o for o in OPENING_LINES if (knows_friend or "<Pair>" not in o) and (o[0] != "~" or "<day>" in "".join(steps[:2]))]
        opening = self.rng.choice(fits)
        if opening[0] == "~":
            opening = opening[1:]
            self.facts["day"] = "[That morning,|That day,|After breakfast,|Later that day,]"
        return tidy(" ".join(self.expand(part) for part in [opening] + steps))


def tidy(text):
    """Single spaces, a or an, and a capital at the start of every sentence and quotation."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"\b([Aa]) (?=[aeiouAEIOU])(?!uni|one|use)", r"\1n ", text)
    text = re.sub(r"\s+([.,!?])", r"\1", text)
    return re.sub(r"(^|[.!?] |[.!?] \"|\.\" )([a-z])", lambda m: m.group(1) + m.group(2).upper(), text)


def story(rng):
    return Story(rng).write()


if __name__ == "__main__":
    count, seed = (int(a) for a in (sys.argv[1:] + ["5", "1"][len(sys.argv) - 1:]))
    generator = random.Random(seed)
    for _ in range(count):
        print(story(generator), "\n")
